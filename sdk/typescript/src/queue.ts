/** A queue whose shift does not move the remaining items. */
export class Queue<T> {
  private items: (T | undefined)[] = [];
  private head = 0;

  push(item: T): void {
    this.items.push(item);
  }

  shift(): T | undefined {
    const item = this.items[this.head];
    this.items[this.head++] = undefined; // release the reference
    if (this.head >= this.items.length) {
      this.items = [];
      this.head = 0;
    } else if (this.head >= 1024) {
      this.items = this.items.slice(this.head);
      this.head = 0;
    }
    return item;
  }
}
