package relay

// none is what stands for "nothing received yet" in a stream whose first segment
// has the number 0: the number before it.
const none = ^uint32(0)

// ackedBits is how many segments after the acknowledged one a frame can tell of.
const ackedBits = 32

// distance returns how far number b lies after a, negative if before. Numbers
// wrap, so it is right for those less than 2^31 apart.
func distance(a, b uint32) int { return int(int32(b - a)) }
