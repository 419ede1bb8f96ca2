package admin

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/server"
)

// Limits of profiles.
const (
	maxProfileBytes     = 64 << 20
	profilePartBytes    = 64 << 10
	defaultProfileTime  = 10 * time.Second
	minProfileTime      = 100 * time.Millisecond
	maxProfileTime      = 5 * time.Minute
	mutexProfileSamples = 100 // one of so many waits is recorded
)

// profiler takes profiles of this program: one of a kind at a time, because the runtime has
// one of each.
type profiler struct {
	mu    sync.Mutex
	taken map[execwirev1.ProfileKind]bool // guarded by mu
}

// TakeProfile implements the RPC.
func (s *service) TakeProfile(req *execwirev1.TakeProfileRequest, stream grpc.ServerStreamingServer[execwirev1.TakeProfileResponse]) error {
	took := defaultProfileTime
	if req.GetDuration() != nil {
		took = req.GetDuration().AsDuration()
	}
	if took < minProfileTime || took > maxProfileTime {
		return status.Errorf(codes.InvalidArgument, "duration must be from %v to %v", minProfileTime, maxProfileTime)
	}
	profile, err := s.profiler.take(stream.Context(), req.GetKind(), took)
	if err != nil {
		return err
	}
	for len(profile) > 0 {
		part := profile[:min(len(profile), profilePartBytes)]
		if err := stream.Send(&execwirev1.TakeProfileResponse{Data: part}); err != nil {
			return err
		}
		profile = profile[len(part):]
	}
	return nil
}

// take takes a profile. It is sent afterwards, so that a client that does not read keeps
// nobody from taking another.
func (p *profiler) take(ctx context.Context, kind execwirev1.ProfileKind, took time.Duration) ([]byte, error) {
	p.mu.Lock()
	busy := p.taken[kind]
	p.taken[kind] = true
	p.mu.Unlock()
	if busy {
		return nil, server.NewStatus(codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_PROFILE_IN_PROGRESS,
			"a profile of this kind is being taken: repeat the call when it is complete", nil)
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.taken, kind)
	}()
	out := &boundedBuffer{full: make(chan struct{})}
	var err error
	switch kind {
	case execwirev1.ProfileKind_PROFILE_KIND_CPU:
		if err = pprof.StartCPUProfile(out); err == nil {
			out.wait(ctx, took)
			pprof.StopCPUProfile()
		}
	case execwirev1.ProfileKind_PROFILE_KIND_TRACE:
		if err = trace.Start(out); err == nil {
			out.wait(ctx, took)
			trace.Stop()
		}
	case execwirev1.ProfileKind_PROFILE_KIND_MUTEX:
		before := runtime.SetMutexProfileFraction(mutexProfileSamples)
		out.wait(ctx, took)
		err = pprof.Lookup("mutex").WriteTo(out, 0)
		runtime.SetMutexProfileFraction(before)
	case execwirev1.ProfileKind_PROFILE_KIND_HEAP:
		err = pprof.Lookup("heap").WriteTo(out, 0)
	case execwirev1.ProfileKind_PROFILE_KIND_GOROUTINE:
		err = pprof.Lookup("goroutine").WriteTo(out, 0)
	case execwirev1.ProfileKind_PROFILE_KIND_GOROUTINES:
		err = pprof.Lookup("goroutine").WriteTo(out, 2)
	default:
		return nil, status.Error(codes.InvalidArgument, "kind is required")
	}
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err != nil && !errors.Is(err, errFull) {
		return nil, status.Errorf(codes.Internal, "failed to take the profile: %v", err)
	}
	return out.data(), nil
}

// errFull ends a profile that has maxProfileBytes.
var errFull = errors.New("the profile is too large")

// boundedBuffer is a buffer of maxProfileBytes.
type boundedBuffer struct {
	mu      sync.Mutex
	content bytes.Buffer  // guarded by mu
	full    chan struct{} // closed when it is full; guarded by mu
	isFull  bool          // guarded by mu
}

// Write implements io.Writer.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.content.Len()+len(p) > maxProfileBytes {
		if !b.isFull {
			b.isFull = true
			close(b.full)
		}
		return 0, errFull
	}
	return b.content.Write(p)
}

func (b *boundedBuffer) data() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content.Bytes()
}

// wait waits for the end of a profile.
func (b *boundedBuffer) wait(ctx context.Context, took time.Duration) {
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-b.full:
	}
}
