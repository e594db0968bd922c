{ print $1, $NF, NF }
END { print NR }
NR == 5, NR == 9 { print NR ": " $0 }
/ERROR/ { n++ } !/ERROR/ { m++ } END { print n + 0, m + 0 }
$1 > 1600000500 { c++ } END { print c + 0 }
{ c[$2]++ } END { for (k in c) s += c[k] * length(k); print s }
{ $2 = "x"; t += length($0) } END { print t }
{ t += length($0) > 80 ? 1 : 0; if (NR > 500) exit } END { print t }
NR % 7 == 0 { next } { n += NF } END { print n }
{ gsub(/[0-9]+/, "#"); s += length($0) } END { print s }
{ sub(/[a-z]+$/, "&&"); s += length($0) } END { print s }
{ if (match($0, /[a-f0-9]{4}/)) s += RSTART * RLENGTH } END { print s }
{ n = split($0, p, /[^a-zA-Z]+/); for (i = 1; i <= n; i++) w[p[i]]++ } END { for (k in w) if (w[k] > m) m = w[k]; print m }
BEGIN { RS = "" } { n++; f += NF } END { print n, f }
BEGIN { RS = "[,.]" } { n++ } END { print n }
BEGIN { FS = ":" } { s += length($2) } END { print s }
BEGIN { FS = "[=/]+" } { s += NF } END { print s }
BEGIN { FS = "" } NR < 50 { s += NF } END { print s }
{ a[NR] = $0 } END { for (i = NR; i > NR - 5; i--) print a[i] }
{ s = s substr($1, 1, 1); if (length(s) > 60) s = "" } END { print s }
{ x = $3 + 0; if (x > max) max = x; if (x < min) min = x; sum += x; sq += x * x } END { printf "%.4g %.4g %.6g %.6g\n", min, max, sum, sqrt(sq) }
tolower($0) ~ /e.*r.*o/ { n++ } END { print n + 0 }
{ while (match($0, /o[a-z]/)) { n++; $0 = substr($0, RSTART + RLENGTH) } } END { print n }
function r(s) { return s == "" ? "" : r(substr(s, 2)) substr(s, 1, 1) } NR < 200 { t += length(r($1)) } END { print t }
{ printf "%-10s|%5d\n", substr($2, 1, 10), NF > "/dev/null" } END { close("/dev/null"); print "written" }
{ k = $1 SUBSEP NF; if (k in seen) d++; seen[k] } END { print d + 0, length(seen) }
