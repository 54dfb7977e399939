/** Files that people drop or choose, with their names relative to what was dropped. */

export interface Named {
  name: string;
  file: File;
}
export const MOST_FILES = 5000;

/** No part begins with a dot: systems put such files into folders, and the panel takes none. */
export const plain = (name: string): boolean => !name.split("/").some((part) => part.startsWith("."));

export const named = (files: Iterable<File>): Named[] =>
  Array.from(files, (file) => ({ name: file.webkitRelativePath || file.name, file })).filter((one) => plain(one.name));

/** Folders are walked; what the browser cannot walk is taken as files. */
export async function gather(transfer: DataTransfer): Promise<Named[]> {
  const entries = Array.from(transfer.items, (item) => item.webkitGetAsEntry()).filter((one) => one !== null);
  if (entries.length === 0) return named(transfer.files);
  const found: Named[] = [];
  for (const entry of entries) await walk(entry, "", found);
  return found;
}

async function walk(entry: FileSystemEntry, above: string, found: Named[]): Promise<void> {
  if (found.length > MOST_FILES || !plain(entry.name)) return;
  const name = above + entry.name;
  if (entry.isFile) {
    const file = await new Promise<File>((take, refuse) => (entry as FileSystemFileEntry).file(take, refuse));
    found.push({ name, file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) { // a reader gives at most a hundred at a time
    const some = await new Promise<FileSystemEntry[]>((take, refuse) => reader.readEntries(take, refuse));
    if (some.length === 0) return;
    for (const one of some) await walk(one, `${name}/`, found);
  }
}
