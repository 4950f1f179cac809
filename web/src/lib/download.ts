/** Save something as a file. It is never opened in the page. */
export function download(content: string | Uint8Array, name: string): void {
  const url = URL.createObjectURL(new Blob([content as BlobPart], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export function bytesOf(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}
