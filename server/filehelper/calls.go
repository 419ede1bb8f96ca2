package filehelper

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// link is the connection to a helper. Streams are gRPC's. Calls of one message each way are frames on a connection of
// their own: gRPC hands each over between four goroutines at either end, which costs more than such a call does.
type link struct {
	*grpc.ClientConn
	frames *frameWriter
	limit  int // of the content of frames

	reading sync.WaitGroup
	broken  chan struct{} // closed when no more calls can be made

	mu      sync.Mutex
	last    uint64                // guarded by mu; the number of the last call
	waiting map[uint64]chan frame // guarded by mu; nil when no more calls can be made
}

func newLink(calls net.Conn, streams *grpc.ClientConn, messageBytes int) (*link, error) {
	frames, err := newFrameWriter(calls)
	if err != nil {
		return nil, err
	}
	l := &link{
		ClientConn: streams, frames: frames, limit: messageBytes + frameRoom,
		broken: make(chan struct{}), waiting: make(map[uint64]chan frame),
	}
	l.reading.Go(l.read)
	return l, nil
}

// Close ends the connection, has calls fail and waits for its goroutines.
func (l *link) Close() error {
	err := errors.Join(l.ClientConn.Close(), l.frames.close())
	l.reading.Wait()
	return err
}

// read hands answers to those who wait for them, until the helper has no more.
func (l *link) read() {
	in := bufio.NewReaderSize(l.frames.conn, bufferSize)
	for {
		f, err := receive(in, l.limit)
		if err != nil {
			break
		}
		l.mu.Lock()
		to := l.waiting[f.call]
		delete(l.waiting, f.call)
		l.mu.Unlock()
		if to != nil { // otherwise the call was given up
			to <- f
		}
	}
	_, _ = l.frames.close(), l.ClientConn.Close() // whose state says so
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, to := range l.waiting {
		close(to)
	}
	l.waiting = nil
	close(l.broken)
}

// errHelperEnded is what calls fail with when the helper has ended.
var errHelperEnded = grpcstatus.Error(codes.Unavailable, "the helper has ended")

// Invoke makes a call of one message each way. It returns when the helper has answered, which learns when ctx is done.
func (l *link) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	request, isRequest := args.(proto.Message)
	response, isResponse := reply.(proto.Message)
	if !isRequest || !isResponse || !understood(opts) {
		return l.ClientConn.Invoke(ctx, method, args, reply, opts...)
	}
	if ctx.Err() != nil {
		return grpcstatus.FromContextError(ctx.Err()).Err()
	}
	return l.exchange(ctx, response, nil, func(call uint64) ([]byte, error) {
		return callFrame(ctx, call, method, request, l.limit)
	})
}

// lend gives the helper a duplicate of a descriptor, which must stay open until the link is closed. It returns when the
// helper has it.
func (l *link) lend(ctx context.Context, fd int) error {
	return l.exchange(ctx, new(emptypb.Empty), unix.UnixRights(fd), func(call uint64) ([]byte, error) {
		return finish(begun(call, kindLend, 0)), nil
	})
}

// exchange sends the frame of a call, with rights if those are not nil, and waits for its answer.
func (l *link) exchange(ctx context.Context, response proto.Message, rights []byte, framed func(call uint64) ([]byte, error)) error {
	answer := make(chan frame, 1)
	call, ok := l.begin(answer)
	if !ok {
		return errHelperEnded
	}
	f, err := framed(call)
	if err != nil {
		l.forget(call)
		return err
	}
	if err := l.frames.send(ctx, f, rights); err != nil {
		l.forget(call)
		if ctx.Err() != nil {
			return grpcstatus.FromContextError(ctx.Err()).Err()
		}
		return errHelperEnded
	}
	select {
	case f, ok := <-answer:
		if !ok {
			return errHelperEnded
		}
		return f.into(response)
	case <-ctx.Done():
		l.forget(call)
		l.frames.post(finish(begun(call, kindCancel, 0)))
		return grpcstatus.FromContextError(ctx.Err()).Err()
	}
}

// understood tells whether options are those that generated code gives.
func understood(opts []grpc.CallOption) bool {
	for _, opt := range opts {
		if _, ok := opt.(grpc.StaticMethodCallOption); !ok {
			return false
		}
	}
	return true
}

func (l *link) begin(answer chan frame) (call uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		return 0, false
	}
	l.last++
	l.waiting[l.last] = answer
	return l.last, true
}

func (l *link) forget(call uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, call)
}

// callFrame is the frame of a call.
func callFrame(ctx context.Context, call uint64, method string, request proto.Message, limit int) ([]byte, error) {
	size := proto.Size(request)
	f := begun(call, kindCall, len(method)+size+64)
	f = appendText(f, method)
	md, _ := metadata.FromOutgoingContext(ctx)
	f = binary.AppendUvarint(f, uint64(len(md)))
	for key, values := range md {
		f = appendText(f, key)
		f = binary.AppendUvarint(f, uint64(len(values)))
		for _, value := range values {
			f = appendText(f, value)
		}
	}
	f, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(f, request)
	if err != nil {
		return nil, grpcstatus.Errorf(codes.Internal, "the request cannot be encoded: %v", err)
	}
	if len(f)-headBytes > limit {
		return nil, tooLarge(len(f)-headBytes, limit)
	}
	return finish(f), nil
}

func tooLarge(size, limit int) error {
	return grpcstatus.Errorf(codes.ResourceExhausted, "a message has %d bytes; at most %d are allowed", size, limit)
}

func appendText(f []byte, text string) []byte {
	return append(binary.AppendUvarint(f, uint64(len(text))), text...)
}

// into decodes an answer, or returns the failure that it is.
func (f frame) into(response proto.Message) error {
	switch f.kind {
	case kindAnswer:
		if err := proto.Unmarshal(f.content, response); err != nil {
			return grpcstatus.Errorf(codes.Internal, "the answer is malformed: %v", err)
		}
		return nil
	case kindFailure:
		failure := new(status.Status)
		if err := proto.Unmarshal(f.content, failure); err == nil && failure.GetCode() != int32(codes.OK) {
			return grpcstatus.ErrorProto(failure)
		}
	}
	return grpcstatus.Error(codes.Internal, fmt.Sprintf("the answer is malformed: it is of kind %d", f.kind))
}
