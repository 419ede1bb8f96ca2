package gateway

import (
	"sync"

	"google.golang.org/grpc"
)

// leastLent is the block for which memory is lent: a smaller one costs little.
const leastLent = 64 << 10

// blocks are memory of blocks that nobody uses.
var blocks = sync.Pool{New: func() any { return new([maxBlockBytes]byte) }}

// blockMemory is memory for a block that is read; nil lends none.
type blockMemory [maxBlockBytes]byte

// borrowBlock returns memory for a block of so many bytes. Whoever fails to read
// into it leaves it to the garbage collector.
func borrowBlock(length uint64) *blockMemory {
	if length < leastLent {
		return nil
	}
	return (*blockMemory)(blocks.Get().(*[maxBlockBytes]byte))
}

// giveBack has others use the memory.
func (m *blockMemory) giveBack() {
	if m != nil {
		blocks.Put((*[maxBlockBytes]byte)(m))
	}
}

// lending tells a core in the same program where the data of the answer may be. To
// a connection over a wire it says nothing.
func (m *blockMemory) lending() grpc.CallOption {
	if m == nil {
		return lending{}
	}
	return lending{memory: m[:]}
}

type lending struct {
	grpc.EmptyCallOption
	memory []byte
}

// Lends is what the option is known by.
func (l lending) Lends() []byte { return l.memory }
