/** Makes the browser save content as it saves a download, with the name of what it is from. */
export function saveAs(of: string, type: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = `${of.replaceAll(/[^\w.-]/g, "_")}.${type}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
