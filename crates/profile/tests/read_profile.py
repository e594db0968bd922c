"""Reads a stored profile or a raw file by the handbook's page on file formats, and prints what it has as JSON."""

import json
import struct
import subprocess
import sys

RUN, MAP, IMAGE, COUNTS, END = 1, 2, 3, 4, 5


def checksum(data):
    total = 0xCBF29CE484222325
    for at in range(0, len(data), 8):
        total = (total ^ int.from_bytes(data[at : at + 8], "little")) * 0x100000001B3 % 2**64
        total ^= total >> 32
    return total


class Postcard:
    def __init__(self, data):
        self.data, self.at = data, 0

    def raw(self, size):
        self.at += size
        assert self.at <= len(self.data), "the content ends early"
        return self.data[self.at - size : self.at]

    def number(self):
        value, shift = 0, 0
        while True:
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self):
        value = self.number()
        return value >> 1 ^ -(value & 1)

    def string(self):
        return self.raw(self.number()).decode()

    def sequence(self, read):
        return [read() for _ in range(self.number())]

    def option(self, read):
        return read() if self.raw(1)[0] else None


def run(content):
    names = ["command", "directory", "host", "suite", "started_ns", "duration_ns", "ending", "runs", "recorder", "test"]
    ending = lambda: [content.number(), content.signed()]
    values = [
        content.sequence(content.string),
        content.string(),
        content.string(),
        content.option(content.string),
        content.number(),
        content.number(),
        content.option(ending),
        content.number(),
        content.string(),
        content.option(content.string),
    ]
    return dict(zip(names, values))


def image(content):
    number, path = content.number(), content.string()
    build_id = content.option(content.string)
    units = content.sequence(lambda: (content.raw(16).hex(), content.number()))
    return {"number": number, "path": path, "build_id": build_id, "units": [unit for unit, _ in units]}


def counts(content):
    image, place = content.number(), content.number()
    counter, found = 0, []
    for step, value in content.sequence(lambda: (content.number(), content.number())):
        counter += step
        found.append([counter, value])
    return {"image": image, "place": place, "counts": found}


def profile(data):
    profile = {"run": None, "images": [], "counts": [], "maps": []}
    at, sections = 32, 0
    while at < len(data):
        head = struct.unpack_from("<8sII16sIIQQQQQ", data, at)
        marker, tag, layout, subject, count, index, packed, unpacked = head[:8]
        assert marker == b"\x93SECTION"
        begin = at + 80 + index
        at = begin + packed
        if tag == MAP:
            profile["maps"].append(subject.hex())
        else:
            plain = subprocess.run(["zstd", "-dcq"], input=data[begin:at], stdout=subprocess.PIPE, check=True).stdout
            assert len(plain) == unpacked
            content = Postcard(plain)
            if tag == RUN:
                assert layout == 4
                profile["run"] = run(content)
            elif tag == IMAGE:
                profile["images"].append(image(content))
            elif tag == COUNTS:
                profile["counts"].append(counts(content))
            elif tag == END:
                assert content.number() == sections and at == len(data), "the profile is truncated"
        sections += 1
    return profile


def raw(data):
    header = struct.unpack_from("<16s12Q", data, 32)
    image, counters, units, units_at, path_at, path_size, regions_at, stride, process, created, switch, total, lost = header
    units_end, path_end = units_at + 32 * units, path_at + path_size
    assert checksum(data[32:128] + data[units_at:units_end] + data[path_at:path_end]) == total, "the header is corrupt"
    found = {"path": data[path_at:path_end].decode(), "process": process, "units": [], "lost": lost & 0xFFFFFFFF}
    assert (len(data) - regions_at) % stride == 0, "the file is truncated"
    regions = range(regions_at, len(data), stride)
    for at in range(units_at, units_end, 32):
        unit, first, size = struct.unpack_from("<16sQQ", data, at)
        words = [struct.unpack_from(f"<{size}Q", data, region + 8 * first) for region in regions]
        found["units"].append([unit.hex(), [sum(counts) for counts in zip(*words)]])
    found["lost"] += sum(struct.unpack_from("<Q", data, region + 8 * counters + 8)[0] & 0xFFFFFFFF for region in regions)
    return found


def main(path):
    data = open(path, "rb").read()
    magic, kind, version, flags, total = struct.unpack_from("<8s4sIQQ", data)
    assert (magic, flags) == (b"\x93TRODDEN", 0), "not a file of trodden"
    assert checksum(data[:24]) == total, "the file's header is corrupt"
    readers = {(b"PROF", 2): profile, (b"RAWC", 4): raw}
    assert (kind, version) in readers, "not a profile or raw file of these versions"
    print(json.dumps(readers[kind, version](data)))


main(sys.argv[1])
