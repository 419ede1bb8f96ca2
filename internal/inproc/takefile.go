package inproc

import (
	"os"

	"google.golang.org/grpc"
)

// TakeFile is a call option with which a caller takes an open file in place of the
// messages with its content. Other connections ignore it.
type TakeFile struct {
	grpc.EmptyCallOption
	// To gets the file, and owns it. The handler calls it at most once, before it sends
	// its next message, and perhaps after the call has ended.
	To func(*os.File)
}

// FileTaker returns the function to pass an open file to; nil if the caller takes none.
// Handlers find it by [grpc.ServerTransportStreamFromContext].
func (t transportStream) FileTaker() func(*os.File) { return t.ss.call.takeFile }
