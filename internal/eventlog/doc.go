// Package eventlog keeps what one process said, in order.
//
// A [Log] is a sequence of events. Each event has one seq, from 1, without
// gaps; each output byte also has an offset in its stream. Chunk boundaries are
// fixed when output is appended and never change afterwards. A log knows no
// exit codes and no wire format.
//
// # Writing
//
// Each stream has one [Writer]. Its Buffer is free space inside a block of the
// log, so that read(2) puts the bytes where they stay: an event's Data is a
// sub-slice of a block, and so is what readers get. Nothing is copied and
// nothing is reused. A block is left to the garbage collector once nobody
// refers to it.
//
// # Reading and owning
//
// Readers are cursors. An observer ([Reader]) never holds anything up; when it
// falls behind the retained events it gets a [Gap] that says how much is
// missing. The [Owner], at most one, paces: what it has not acknowledged is not
// evicted, and writers get no more buffers once a window of bytes (or of
// events) is unacknowledged. The window is shared out so that no stream can
// keep another from speaking. After [Owner.Release] with hold the same
// protection lasts without a reader, until [Log.Own] or [Log.Free]; with
// Limits.Held a log begins so, that nothing can be lost before its first owner.
//
// Next blocks. A goroutine that reads many logs uses TryNext and
// [Reader.Notify] instead.
//
// # Retention
//
// The oldest output events are evicted, whole, until at most RetainedBytes and
// RetainedEvents of them are left. The exited and closed events are never
// evicted. Blocks that are alive only because a cursor's last batch refers to
// them are charged against RetainedBytes, up to half of it. Independently of
// all that the first and last SnapshotBytes of each stream are kept for
// [Log.Snapshot]; they are references to the same blocks, so they cost nothing
// while the events themselves are retained.
//
// # Memory
//
// What a log holds is counted in Stats.HeldBytes and never exceeds
// [Limits.MaxHeldBytes]; the formula is explained there.
package eventlog
