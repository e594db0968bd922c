"""Runs the guide's example on rows.parquet, and compares the results of its query with `trodden fleet aggregate --json`. See spark.sh.

spark.py GUIDE SUMS
"""

import json
import re
import sys

import duckdb

guide, sums = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))
example = re.search(r"```python\n(.*?)```", guide, re.S).group(1)
query = re.search(r'spark\.sql\("""(.*?)"""\)', example, re.S).group(1)
everything = re.sub(r"\bLIMIT \d+", "", query)
limit = int(re.search(r"\bLIMIT (\d+)", query).group(1))


def differs(engine, found, expected):
    for at, (one, other) in enumerate(zip(found, expected)):
        if one != other:
            sys.exit(f"{engine}: row {at} is {one}, trodden says {other}")
    if len(found) != len(expected):
        sys.exit(f"{engine}: {len(found)} rows, trodden has {len(expected)}")


def compare(engine, rows, all_rows):
    """Compares an engine's rows, given as dictionaries for the query as it is and without its limit, with trodden's."""
    named = lambda r: (r["build"], r["function"], r["path"], r["counter"], r["users"], r["reports"], r["executions"])
    reported = lambda p: (p["image_identity"], p["function"], p["id"], p["counter"], p["users"], p["reports"], p["count"])
    number = lambda row: tuple(int(v) if isinstance(v, str) and v.isdigit() else v for v in row)
    key = lambda row: tuple(str(v) for v in row)
    differs(engine, sorted(map(number, map(named, all_rows)), key=key), sorted(map(number, map(reported, sums["paths"])), key=key))
    # Rows of equal rank can come in any order.
    rank = lambda users, executions: (int(users), int(executions))
    expected = [rank(p["users"], p["count"]) for p in sums["paths"][:limit]]
    differs(engine, [rank(r["users"], r["executions"]) for r in rows], expected)
    print(f"{engine}: {len(all_rows)} paths of {sums['reports']} reports, the same as in trodden")


exec(example)  # Also prints the result. From here on, `spark` is the example's session.
as_dicts = lambda text: [row.asDict() for row in spark.sql(text).collect()]  # noqa: F821
compare("Spark", as_dicts(query), as_dicts(everything))

embedded = lambda text: duckdb.sql(text.replace("FROM untested", "FROM 'rows.parquet'"))
in_duckdb = lambda text: [dict(zip(embedded(text).columns, row)) for row in embedded(text).fetchall()]
compare("DuckDB", in_duckdb(query), in_duckdb(everything))

# End Spark's own process, which would otherwise look for its files after they have been removed.
gateway = spark.sparkContext._gateway  # noqa: F821
spark.stop()  # noqa: F821
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
