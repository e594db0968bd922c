BEGIN { for (i = 0; i < 20; i++) s = s i; print s, length(s), substr(s, 3, 5), substr(s, -1, 3), substr(s, 100) }
BEGIN { print sin(1), cos(1), atan2(1, 2), exp(1), log(2), sqrt(2), int(-3.7), 2 ^ 10, 7 % 3, -7 % 3 }
BEGIN { printf "%d %5d %-5d| %05d %x %X %o %c %c %s %.3s %10s %e %G %g %%\n", 3.9, 4, 5, 6, 255, 255, 8, 65, "hello", "str", "abcdef", "r", 12345.678, 1e-10, 0.5 }
BEGIN { while (i < 5) { i++; if (i == 2) continue; if (i == 4) break; print i } do { j++ } while (j < 3); print j }
BEGIN { a["x"] = 1; a["y"] = 2; a[1, 2] = 3; if ("x" in a) print "in"; if ((1, 2) in a) print "pair"; delete a["x"]; n = 0; for (k in a) n++; print n; delete a; print length(a) }
BEGIN { s = "the cat sat"; gsub(/at/, "<&>", s); print s; sub(/c/, "\\&", s); print s; print gsub(/x*/, "-", s), s }
BEGIN { n = split("a:b:c::d", p, ":"); print n, p[1], p[4], p[5]; print split("", p), split("abc", p, ""), split(" a  b ", q) }
BEGIN { print match("foobar", /o+/), RSTART, RLENGTH, match("x", /y/), RSTART, RLENGTH, index("hello", "ll") }
BEGIN { print toupper("aBc1"), tolower("AbC1"), length(), length("héllo") }
function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2) } BEGIN { print f(15) }
function g(a, k) { a[k] = k * 2; return a[k] } BEGIN { print g(arr, 4), arr[4] }
BEGIN { "echo one; echo two" | getline x; print x; while (("echo a; echo b" | getline line) > 0) print line; close("echo a; echo b") }
BEGIN { print "b" | "sort"; print "a" | "sort"; close("sort"); print "end" }
BEGIN { print 1 == 1.0, "a" < "b", "10" < 9, 10 < 9, "abc" ~ /b/, "abc" !~ "^b", !0, !"", !"a", 1 && 0, 1 || 0 }
BEGIN { x = 5; x += 2; x -= 1; x *= 3; x /= 2; x %= 5; x ^= 2; print x, x++, ++x, x--, --x, -x, +x }
BEGIN { print 1e300 * 1e300, -log(0), 0x10, "0x10" + 0, "3abc" + 1, ".5" + 0, "1e3" + 0, 100000000000000000000 }
BEGIN { OFS = "-"; ORS = ";\n"; $0 = "a b c"; $5 = "e"; print; print NF; NF = 2; print; $1 = ""; print $0 }
BEGIN { srand(1); srand(2); print srand() ; CONVFMT = "%.2g"; a = 3.14159; b = a ""; print b; OFMT = "%.3f"; print a }
BEGIN { if (!("HOME" in NOTHING)) print "none"; print ENVIRON["NOTHING"] "x", ARGC, ARGV[0] != "" }
BEGIN { s = sprintf("%s%s", "a", "b"); s = s s s; print s, s == "ababab", s > "ab"; print length(sprintf("%1000s", "")) }
BEGIN { for (i = 0; i < 300; i++) a[i % 37, i % 11] += i; for (k in a) { split(k, p, SUBSEP); t += a[k] * p[1] - p[2] } print t }
BEGIN { print "abc" ~ /^[a-c]+$/, "a.c" ~ /a\.c/, "a+c" ~ "a\\+c", "aab" ~ /a{2}b/, "x" ~ /x?y*/, "tab\t" ~ /[[:space:]]$/, "q" ~ /(a|q)/, "]" ~ /[]]/ }
BEGIN { printf "%s %d\n", "no newline", "12abc"; printf("%5.1f|%-8.2e|%+d|% d\n", 3.14159, 31415.9, 7, 7); printf "%*d|%-*d|\n", 5, 42, 5, 42 }
BEGIN { getline; print "got", $0; exit } END { print "end", NR }
BEGIN { while ((getline line < "/nonexistent") > 0) n++; print n + 0; print "x" > "/dev/stderr"; system("true"); print system("exit 3") }
