package inproc

import (
	"os"

	"google.golang.org/grpc"
)

// takesFile is a call option with which a caller takes an open file in place of the
// messages with its content. The handler calls TakeFile at most once, before it sends its
// next message, and perhaps after the call has ended; the callee owns the file. Callers
// define their own option, which other connections ignore:
//
//	type option struct{ grpc.EmptyCallOption; … }
//
//	func (o option) TakeFile(f *os.File) { … }
type takesFile interface{ TakeFile(f *os.File) }

func fileTakerOf(opts []grpc.CallOption) func(*os.File) {
	for _, o := range opts {
		if o, ok := o.(takesFile); ok {
			return o.TakeFile
		}
	}
	return nil
}

// FileTaker returns the function to pass an open file to; nil if the caller takes none.
// Handlers find it by [grpc.ServerTransportStreamFromContext].
func (t transportStream) FileTaker() func(*os.File) { return t.ss.call.takeFile }
