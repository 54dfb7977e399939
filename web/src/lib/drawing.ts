/**
 * A drawing as a model sees it: cut out, scaled to the middle, its centre of mass in the centre, as
 * the digits of MNIST were made (LeCun, Cortes, Burges: "The MNIST database of handwritten digits").
 * How large it is made, the samples say: a model does not know digits of another size.
 */

/** How much of a picture's side the drawing fills where no sample says: 20 of 28 pixels, as in MNIST. */
const FILLS = 20 / 28;
const INK = 0.05;

export interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** Where there is ink; right and bottom are one behind. Null: a blank sheet. */
export function inkBox(ink: ArrayLike<number>, width: number, height: number): Box | null {
  const box: Box = { left: width, top: height, right: 0, bottom: 0 };
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      if ((ink[y * width + x] ?? 0) <= INK) continue;
      box.left = Math.min(box.left, x);
      box.right = Math.max(box.right, x + 1);
      box.top = Math.min(box.top, y);
      box.bottom = Math.max(box.bottom, y + 1);
    }
  }
  return box.right > box.left ? box : null;
}

/** The sheet (row by row, 0 to 1) as `rows` × `columns` numbers, 0 to 1; null where it is blank. */
export function shrink(ink: ArrayLike<number>, width: number, height: number, rows: number, columns: number, fills: number = FILLS): number[] | null {
  const box = inkBox(ink, width, height);
  if (!box) return null;
  const scale = Math.max((box.right - box.left) / (columns * fills), (box.bottom - box.top) / (rows * fills));
  const middle = mass(ink, width, box);
  const out: number[] = [];
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const left = middle.x + (column - columns / 2) * scale;
      const top = middle.y + (row - rows / 2) * scale;
      out.push(mean(ink, width, height, left, top, scale));
    }
  }
  const most = out.reduce((a, b) => Math.max(a, b), 0); // too many to be arguments
  return most > 0 ? out.map((value) => Math.min(1, value / most)) : out;
}

function mass(ink: ArrayLike<number>, width: number, box: Box): { x: number; y: number } {
  let [sum, x, y] = [0, 0, 0];
  for (let row = box.top; row < box.bottom; row += 1) {
    for (let column = box.left; column < box.right; column += 1) {
      const value = ink[row * width + column] ?? 0;
      sum += value;
      x += value * (column + 0.5);
      y += value * (row + 0.5);
    }
  }
  return { x: x / sum, y: y / sum };
}

/** The mean ink of a square, edges counted by how much of them is in it; nothing is off the sheet. */
function mean(ink: ArrayLike<number>, width: number, height: number, left: number, top: number, side: number): number {
  let sum = 0;
  for (let y = Math.max(0, Math.floor(top)); y < Math.min(height, top + side); y += 1) {
    const tall = Math.min(y + 1, top + side) - Math.max(y, top);
    for (let x = Math.max(0, Math.floor(left)); x < Math.min(width, left + side); x += 1) {
      sum += (ink[y * width + x] ?? 0) * tall * (Math.min(x + 1, left + side) - Math.max(x, left));
    }
  }
  return sum / (side * side);
}

/** How much of the side most pictures fill. `turned`: they are dark on bright. */
export function filled(pictures: readonly (readonly number[])[], rows: number, columns: number, turned: boolean): number {
  const sides = pictures.flatMap((picture) => {
    const box = inkBox(turned ? picture.map((value) => 1 - value) : picture, columns, rows);
    return box ? [Math.max((box.right - box.left) / columns, (box.bottom - box.top) / rows)] : [];
  });
  return sides.sort((a, b) => a - b)[Math.floor(sides.length / 2)] ?? FILLS;
}

/** Whether pictures are dark on bright, by their corners: then a drawing has to be turned round. */
export function onBright(pictures: readonly (readonly number[])[], rows: number, columns: number): boolean {
  const corners = [0, columns - 1, (rows - 1) * columns, rows * columns - 1];
  const values = pictures.flatMap((picture) => corners.map((at) => picture[at] ?? 0));
  return values.length > 0 && values.reduce((a, b) => a + b, 0) / values.length > 0.5;
}
