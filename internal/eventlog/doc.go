// Package eventlog keeps the output and the end of one process, in order.
//
// A [Log] is a sequence of events. Each event has one seq, from 1, without gaps; each
// output byte also has an offset in its stream. Chunk boundaries are fixed when
// output is appended and never change afterwards. A log knows no exit codes and no
// wire format.
//
// # Writing
//
// Each stream has one [Writer]. Its Buffer is free space inside a block of the log,
// so that read(2) stores the bytes in their final place: an event's Data is a
// sub-slice of a block, and readers get the same sub-slice. Nothing is copied. A block is
// garbage collected once nothing refers to it. If it was only read by cursors that borrow,
// see [Reader.Borrow] and [Owner.BorrowUntilAcknowledged], its memory is used for the next
// block instead.
//
// # Reading and owning
//
// Readers are cursors. An observer ([Reader]) never delays a writer; when it falls
// behind the retained events it gets a [Gap] that says how much is missing. The
// [Owner], at most one, paces: unacknowledged events are not evicted, and writers get
// no more buffers once a window of bytes (or of events) is unacknowledged. Each
// stream has a share of the window, so that no stream can block another. After
// [Owner.Release] with hold the same protection continues without a reader, until
// [Log.Own] or [Log.Free]; with Limits.Held a log starts so, and nothing is evicted
// before its first owner.
//
// Next blocks. A goroutine that reads many logs uses TryNext and [Reader.Notify]
// instead.
//
// # Retention
//
// The oldest output events are evicted, whole, until at most RetainedBytes and
// RetainedEvents of them are left. The exited and closed events are never evicted.
// Blocks that are only alive because a cursor's last batch refers to them are charged
// against RetainedBytes, up to half of it. In addition, the first and last
// SnapshotBytes of each stream are kept for [Log.Snapshot]; they are references to
// the same blocks, so they cost nothing while the events themselves are retained.
//
// # Files
//
// A log of [Files] has a second tier. Output that nobody has acknowledged, of a log that is
// neither owned nor held, is written to a file before it is evicted from memory, in blocks of
// at most 64 KiB. The file is a ring: beyond its limits the oldest block is overwritten. Cursors
// read from both tiers. The disk is used without the lock: by [Writer.WaitSpace], for which
// Buffer returns nil when there is something to write, by [Log.Offload], which moves all
// retained output of a closed log to its file, acknowledged or not, and by cursors and snapshots. The file ends with [Log.Discard].
//
// # State
//
// [Log.State] is the content of a log without its cursors, and [Files.Restore] makes an equal
// log of it in another program, with the same seqs, offsets and acknowledgements.
//
// # Memory
//
// Stats.HeldBytes is the memory of a log. For a process that writes to a number of
// streams, with a number of cursors that hold a batch (replaced owners that were not
// released included), it never exceeds
//
//	8/7 · (RetainedBytes + 2 · streams · SnapshotBytes)   a block is full at 7/8
//	+ 4 · streams · block                                 begun or partly evicted blocks
//	+ block                                               a spare one, until the end
//	+ 3 · block + 14 KiB per cursor                       its last batch
//	+ 64 KiB per cursor that reads the file               its block
//	+ 64 bytes per 16 KiB of the limit of the file        its index
//	+ 40 bytes per event, in segments of 2.5 KiB
//
// with block = RetainedBytes/8, at most 64 KiB. With the defaults, two streams, an
// owner and one observer it is 4.4 MiB, of which 1.9 MiB only for a flood of tiny
// events.
package eventlog
