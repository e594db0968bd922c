"""Reads a stored profile by the handbook's page on file formats, and prints its run, images and counts as JSON."""

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


def main(path):
    data = open(path, "rb").read()
    magic, kind, version, flags, total = struct.unpack_from("<8s4sIQQ", data)
    assert (magic, kind, version, flags) == (b"\x93TRODDEN", b"PROF", 2, 0), "not a profile of this version"
    assert checksum(data[:24]) == total, "the head is damaged"
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
    print(json.dumps(profile))


main(sys.argv[1])
