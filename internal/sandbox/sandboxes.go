package sandbox

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Options configure [New].
type Options struct {
	// Bubblewrap is the absolute path of bwrap. Empty searches the absolute
	// directories of PATH. It is not used if users other than root and this user can
	// replace it.
	Bubblewrap string
	// Without are backends that must not be used.
	Without []Backend
}

// Status describes a backend on this machine.
type Status struct {
	// Backend is the backend.
	Backend Backend
	// Err is why the backend does not work; nil if it works.
	Err error
	// Path is the path of bwrap, if the backend is Bubblewrap.
	Path string
}

// Sandboxes are the backends that work on this machine. They may be used concurrently.
// The zero value has none.
type Sandboxes struct {
	statuses     []Status // the strongest first; read after probed is closed
	self         selfFile
	namespaces   sharedNamespaces
	placeholders placeholders

	options   Options
	lifetime  context.Context // ends with Close
	end       context.CancelCauseFunc
	probeOnce sync.Once     // its function closes probed
	probed    chan struct{} // nil in the zero value
}

// errClosed is the error of all backends after Close.
var errClosed = errors.New("the sandboxes are closed")

// New returns Sandboxes that probe the backends on first use, that is in
// [Sandboxes.Wait], [Sandboxes.Statuses] or [Sandboxes.Confine], which wait for the
// result. A probe executes this program in a sandbox, where it attempts what the
// sandbox must prevent; so the main function must call [Main] first. It takes some tens
// of milliseconds. The caller closes the Sandboxes.
func New(options Options) *Sandboxes {
	s := &Sandboxes{placeholders: placeholders{all: map[string]*placeholder{}}, options: options, probed: make(chan struct{})}
	s.lifetime, s.end = context.WithCancelCause(context.Background())
	return s
}

// Wait waits until the backends are probed. If ctx ends first, it returns the cause.
func (s *Sandboxes) Wait(ctx context.Context) error {
	if s.probed == nil {
		return nil
	}
	s.probeOnce.Do(func() { go s.probe() })
	select {
	case <-s.probed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// probe sets the statuses.
func (s *Sandboxes) probe() {
	defer close(s.probed)
	bwrap, err := findBubblewrap(s.options.Bubblewrap)
	s.statuses = []Status{{Backend: Bubblewrap, Err: err, Path: bwrap}, {Backend: Landlock, Err: checkLandlock()}}
	for i := range s.statuses {
		status := &s.statuses[i]
		if slices.Contains(s.options.Without, status.Backend) {
			status.Err = errors.New("it is switched off by the configuration")
		}
		if status.Err == nil {
			status.Err = s.probeBackend(s.lifetime, status)
		}
	}
}

// Close releases shared resources. Running programs continue. No program may be started
// afterwards.
func (s *Sandboxes) Close() {
	if s.probed != nil {
		s.end(errClosed)
		s.probeOnce.Do(func() {
			s.statuses = []Status{{Backend: Bubblewrap, Err: errClosed}, {Backend: Landlock, Err: errClosed}}
			close(s.probed)
		})
		<-s.probed
	}
	s.self.close()
	s.namespaces.close()
}

// Statuses returns the status of each backend, the strongest first.
func (s *Sandboxes) Statuses() []Status {
	_ = s.Wait(context.Background())
	return slices.Clone(s.statuses)
}

// Confine chooses the strongest working backend that can enforce the plan. Without one
// it fails with kind Unavailable and the reason for each backend.
func (s *Sandboxes) Confine(plan *Plan) (*Confinement, error) {
	_ = s.Wait(context.Background())
	var reasons []Reason
	for i := range s.statuses {
		err := s.statuses[i].Err
		if err == nil {
			var e enforcer
			if e, err = s.newEnforcer(&s.statuses[i], plan); err == nil {
				return &Confinement{enforce: e, plan: plan, placeholders: &s.placeholders}, nil
			}
		}
		reasons = append(reasons, Reason{Backend: s.statuses[i].Backend, Err: err})
	}
	return nil, &Error{Kind: Unavailable, Reasons: reasons, Err: errors.New("nothing on this machine can enforce the policy")}
}

// Key is equal for plans that grant the same access to the same files, so that a
// program started for one plan can be used for the other. It contains the identities of
// the files, so it changes if a file is replaced. A path with a placeholder counts as
// missing. If another process removes a placeholder, programs that were started before
// no longer have it, and the key changes.
func (s *Sandboxes) Key(plan *Plan) string {
	return plan.key(func(r *rule) (recreated int) {
		isPlaceholder, recreated := s.placeholders.lookup(r.path, r.id)
		if r.missing = isPlaceholder || r.isMissing(); !r.missing {
			return 0
		}
		r.id = fileID{}
		return recreated
	})
}

func (s *Sandboxes) newEnforcer(status *Status, plan *Plan) (enforcer, error) {
	if status.Backend == Landlock {
		e, err := newLandlock(plan)
		if err != nil {
			return nil, err
		}
		return e, nil
	}
	e := &bubblewrap{program: status.Path, plan: plan, self: &s.self, namespaces: &s.namespaces, placeholders: &s.placeholders}
	if err := e.resolveMounts(); err != nil {
		return nil, err
	}
	return e, nil
}
