/** A small curve without axes, as SVG draws it. */

/** Points of a polyline within `width` × `height`, `pad` from every edge. */
export function spark(curve: readonly { at_s: number; value: number }[], width: number, height: number, pad = 4): string {
  if (curve.length === 0) return "";
  const times = curve.map((point) => point.at_s);
  const values = curve.map((point) => point.value);
  const scale = (all: number[], size: number) => {
    const least = Math.min(...all);
    const span = Math.max(...all) - least;
    return (value: number): number => (span === 0 ? size / 2 : pad + ((value - least) / span) * (size - 2 * pad));
  };
  const x = scale(times, width);
  const y = scale(values, height);
  return curve.map((point) => `${x(point.at_s).toFixed(1)},${(height - y(point.value)).toFixed(1)}`).join(" ");
}
