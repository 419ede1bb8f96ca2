package relay

// noSegment precedes segment 0: as an acknowledgement it means that nothing was
// received.
const noSegment = ^uint32(0)

// ackedBits is how many segments after the acknowledged one the ack bits of a
// frame cover.
const ackedBits = 32

// distance returns how far b is ahead of a, negative if behind. Sequence numbers
// wrap; the result is correct for distances below 2^31.
func distance(a, b uint32) int { return int(int32(b - a)) }
