package filehelper

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const testMessage = 4 << 20

// patience guards against hanging.
const patience = 2 * time.Minute

// testService answers with what it was sent, fails or waits.
type testService struct {
	testgrpc.UnimplementedTestServiceServer
	waiting, ended chan error
}

func (s *testService) UnaryCall(ctx context.Context, req *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	if req.GetResponseStatus() != nil {
		return nil, status.Error(codes.Code(req.GetResponseStatus().GetCode()), req.GetResponseStatus().GetMessage()) //nolint:gosec // a code of the test
	}
	if req.GetFillUsername() {
		s.waiting <- nil
		<-ctx.Done()
		s.ended <- context.Cause(ctx)
		return nil, context.Cause(ctx)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	method, _ := grpc.Method(ctx)
	body := req.GetPayload().GetBody()
	if size := int(req.GetResponseSize()); size > 0 {
		body = make([]byte, size)
	}
	return &testgrpc.SimpleResponse{Payload: &testgrpc.Payload{Body: body}, Username: method, Hostname: join(md["key"])}, nil
}

func join(values []string) (joined string) {
	for _, value := range values {
		joined += value + ";"
	}
	return joined
}

// socketPair is a pair of connected sockets.
func socketPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	listener, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if a, err = net.Dial("unix", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// linked is a link, and the service at its other end.
func linked(t *testing.T) (*link, *testService) {
	t.Helper()
	ours, theirs := socketPair(t)
	service := &testService{waiting: make(chan error), ended: make(chan error, 1)}
	a, err := newAnswerer(theirs, testMessage, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	testgrpc.RegisterTestServiceServer(registrar{grpc.NewServer(), a}, service)
	var serving sync.WaitGroup
	serving.Go(a.serve)
	t.Cleanup(serving.Wait)
	return linkTo(t, ours), service
}

func linkTo(t *testing.T, conn net.Conn) *link {
	t.Helper()
	streams, err := grpc.NewClient("passthrough:///none", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLink(conn, streams, testMessage)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errTooLong)
	t.Cleanup(cancel)
	return ctx
}

func TestCallsAtOnceGetTheirOwnAnswers(t *testing.T) {
	l, _ := linked(t)
	client := testgrpc.NewTestServiceClient(l)
	ctx := metadata.NewOutgoingContext(within(t), metadata.Pairs("key", "a", "key", "b", "other", "c"))
	var calls sync.WaitGroup
	for i := range 60 {
		calls.Go(func() {
			body := bytes.Repeat([]byte{byte(i)}, 1+i*i*300) // more than the connection has room for, and less
			response, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: body}})
			if err != nil || !bytes.Equal(response.GetPayload().GetBody(), body) {
				t.Errorf("call %d got %d bytes and %v, want %d", i, len(response.GetPayload().GetBody()), err, len(body))
			}
			if response.GetUsername() != testgrpc.TestService_UnaryCall_FullMethodName || response.GetHostname() != "a;b;" {
				t.Errorf("call %d came as %q with %q", i, response.GetUsername(), response.GetHostname())
			}
		})
	}
	calls.Wait()
}

func TestCallsFailAsTheHelperSays(t *testing.T) {
	l, _ := linked(t)
	client, ctx := testgrpc.NewTestServiceClient(l), within(t)
	for name, test := range map[string]struct {
		request *testgrpc.SimpleRequest
		code    codes.Code
	}{
		"refused":          {&testgrpc.SimpleRequest{ResponseStatus: &testgrpc.EchoStatus{Code: int32(codes.NotFound), Message: "no"}}, codes.NotFound},
		"too much to ask":  {&testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: make([]byte, testMessage+frameRoom)}}, codes.ResourceExhausted},
		"too much to say":  {&testgrpc.SimpleRequest{ResponseSize: testMessage + frameRoom}, codes.ResourceExhausted},
		"after all that: ": {&testgrpc.SimpleRequest{}, codes.OK},
	} {
		if _, err := client.UnaryCall(ctx, test.request); status.Code(err) != test.code {
			t.Errorf("%s: %v, want %v", name, err, test.code)
		}
	}
	if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that the helper does not have fails with %v", err)
	}
	if err := l.Invoke(ctx, "/none/None", &testgrpc.Empty{}, &testgrpc.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that is not known fails with %v", err)
	}
}

func TestCallsThatAreGivenUpEndInTheHelper(t *testing.T) {
	l, service := linked(t)
	ctx, cancel := context.WithCancelCause(within(t))
	var call sync.WaitGroup
	call.Go(func() {
		_, err := testgrpc.NewTestServiceClient(l).UnaryCall(ctx, &testgrpc.SimpleRequest{FillUsername: true})
		if status.Code(err) != codes.Canceled {
			t.Errorf("a call that was given up fails with %v", err)
		}
	})
	<-service.waiting
	cancel(nil)
	call.Wait()
	if err := <-service.ended; !errors.Is(err, errGivenUp) {
		t.Errorf("the helper ended the call because of %v", err)
	}
}

func TestCallsEndWithTheConnection(t *testing.T) {
	l, service := linked(t)
	client := testgrpc.NewTestServiceClient(l)
	ctx := within(t)
	var call sync.WaitGroup
	call.Go(func() {
		if _, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{FillUsername: true}); status.Code(err) != codes.Unavailable {
			t.Errorf("a call whose connection has ended fails with %v", err)
		}
	})
	<-service.waiting
	_ = l.Close()
	call.Wait()
	if err := <-service.ended; !errors.Is(err, errGivenUp) {
		t.Errorf("the helper ended the call because of %v", err)
	}
	if _, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call after it fails with %v", err)
	}
}

// What a helper says that a program has taken over is not to be trusted.
func TestFramesThatMakeNoSenseEndTheConnection(t *testing.T) {
	for name, said := range map[string][]byte{
		"longer than allowed":    binary.BigEndian.AppendUint32(nil, 1<<31),
		"shorter than possible":  make([]byte, headBytes),
		"cut off in the middle":  {0, 0, 0, 100, 1},
		"of a call that is none": finish(begun(17, kindAnswer, 0)),
	} {
		ours, theirs := socketPair(t)
		l := linkTo(t, ours)
		if _, err := theirs.Write(append(said, make([]byte, headBytes)...)); err != nil {
			t.Fatal(err)
		}
		if err := theirs.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-l.broken:
		case <-within(t).Done():
			t.Errorf("%s: the connection lives on", name)
		}
	}
	ours, theirs := socketPair(t)
	a, err := newAnswerer(theirs, testMessage, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write(finish(begun(1, kindAnswer, 0))); err != nil {
		t.Fatal(err)
	}
	a.serve() // which returns
}

func TestMalformedCallsAreRefused(t *testing.T) {
	a := &answerer{methods: map[string]method{}}
	for _, content := range []string{"", "\xff", "\x05ab", "\x01a", "\x01a\x01", "\x01a\x01\x01k\x09", "\x01a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		if _, err := a.call(t.Context(), []byte(content)); status.Code(err) != codes.Internal {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// A helper that does not read keeps no caller from giving up.
func TestWhoeverWaitsForRoomCanGiveUp(t *testing.T) {
	ours, theirs := socketPair(t)
	l := linkTo(t, ours)
	client := testgrpc.NewTestServiceClient(l)
	ctx, cancel := context.WithCancelCause(within(t))
	var calls sync.WaitGroup
	for range 5 {
		calls.Go(func() {
			_, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: make([]byte, 2<<20)}})
			if status.Code(err) != codes.Canceled {
				t.Errorf("it fails with %v", err)
			}
		})
	}
	var first [1]byte
	if _, err := io.ReadFull(theirs, first[:]); err != nil { // then one is being written
		t.Fatal(err)
	}
	cancel(nil)
	calls.Wait()
	if err := theirs.Close(); err != nil && !errors.Is(err, unix.EPIPE) {
		t.Fatal(err)
	}
}
