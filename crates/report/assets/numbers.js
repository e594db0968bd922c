// `value.toFixed(digits)`, except that a value exactly in the middle between two results becomes the even one, as in Rust: pages and text
// reports show the same figures. Only multiples of 2^-(digits + 1) are in the middle, so the steps below are exact.
function fixed(value, digits) {
  const scale = 10 ** digits, isTie = Math.abs(value * 2 ** (digits + 1)) % 2 === 1;
  return (isTie ? 2 * Math.round(value * scale / 2) / scale : value).toFixed(digits);
}
