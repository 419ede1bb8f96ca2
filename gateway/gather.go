package gateway

import "sync"

const (
	// gatheredBytes is how much of a large file is written at once, and so the
	// memory that it takes on its way.
	gatheredBytes = 4 << 20
	// maxGathering is how many files may take that at once, of all connections;
	// clients that do not read keep it for as long as they like.
	maxGathering = 8
	// gatheredLess is what further ones take.
	gatheredLess = 256 << 10
)

// gathering has an element for each of the large buffers that are used;
// gathered are some that are not.
var (
	gathering = make(chan struct{}, maxGathering)
	gathered  = sync.Pool{New: func() any { return new([gatheredBytes]byte) }}
)

// gather returns an empty buffer whose capacity is what may be gathered. It is
// not to be used any more after giveBack.
func gather() (buffer []byte, giveBack func()) {
	select {
	case gathering <- struct{}{}:
		large := gathered.Get().(*[gatheredBytes]byte)
		return large[:0], func() {
			gathered.Put(large)
			<-gathering
		}
	default:
		return make([]byte, 0, gatheredLess), func() {}
	}
}
