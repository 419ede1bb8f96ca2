package sandbox

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Options say how to find out what works.
type Options struct {
	// Bubblewrap is the absolute path of the program bwrap. Empty: the first in an absolute directory of PATH. It is not
	// used if others than root and this user can replace it.
	Bubblewrap string
	// Without are backends that are not to be used.
	Without []Backend
}

// Status is what was found out about a backend.
type Status struct {
	// Backend is the backend in question.
	Backend Backend
	// Err says why it does not work here. Nil: it works.
	Err error
	// Path is where its program is, or "".
	Path string
}

// Sandboxes are the ways to enforce a plan that work here. They may be used concurrently. The zero value has none.
type Sandboxes struct {
	statuses []Status // the strongest first; read when found is closed
	starters starterFiles
	shared   sharedNamespaces
	reserved placeholders
	preparer preparerFile

	options  Options
	lifetime context.Context // until Close
	end      context.CancelCauseFunc
	begin    sync.Once     // whoever begins closes found
	found    chan struct{} // nil of the zero value
}

// errClosed is why nothing works any more.
var errClosed = errors.New("this program has given its sandboxes back")

// Probe finds out which backends work here, by starting a program confined by each that tries what it must not. It
// waits for those programs, a few milliseconds each, until ctx is done. The program is this one: its main function
// calls [Main] first. The caller closes what it returns.
func Probe(ctx context.Context, options Options) *Sandboxes {
	s := Later(options)
	s.begin.Do(func() { s.probe(ctx) })
	return s
}

// Later returns at once, and probes, as [Probe] does, when somebody waits for it: in [Sandboxes.Wait],
// [Sandboxes.Statuses] or [Sandboxes.Confine], the last two of which wait for as long as that takes. The caller closes
// what it returns.
func Later(options Options) *Sandboxes {
	s := &Sandboxes{reserved: placeholders{all: map[string]*placeholder{}}, options: options, found: make(chan struct{})}
	s.lifetime, s.end = context.WithCancelCause(context.Background())
	return s
}

// Wait returns when it is known what works here, or with the cause of ctx.
func (s *Sandboxes) Wait(ctx context.Context) error {
	if s.found == nil {
		return nil
	}
	s.begin.Do(func() { go s.probe(s.lifetime) })
	select {
	case <-s.found:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// probe finds out what works.
func (s *Sandboxes) probe(ctx context.Context) {
	defer close(s.found)
	bwrap, err := findBubblewrap(s.options.Bubblewrap)
	s.statuses = []Status{{Backend: Bubblewrap, Err: err, Path: bwrap}, {Backend: Landlock, Err: checkLandlock()}}
	for i := range s.statuses {
		status := &s.statuses[i]
		if slices.Contains(s.options.Without, status.Backend) {
			status.Err = errors.New("it is switched off by the configuration")
		}
		if status.Err == nil {
			status.Err = s.try(ctx, status)
		}
	}
}

// Close gives back what was opened for programs to come. Those that were started run on. Nothing may be started after
// it.
func (s *Sandboxes) Close() {
	if s.found != nil {
		s.end(errClosed)
		s.begin.Do(func() {
			s.statuses = []Status{{Backend: Bubblewrap, Err: errClosed}, {Backend: Landlock, Err: errClosed}}
			close(s.found)
		})
		<-s.found
	}
	s.starters.close()
	s.preparer.close()
	s.shared.close()
}

// Statuses says of each backend whether it works here, the strongest first.
func (s *Sandboxes) Statuses() []Status {
	_ = s.Wait(context.Background())
	return slices.Clone(s.statuses)
}

// Confine chooses the strongest backend that works here and can enforce the plan. If there is none it fails with the
// kind Unavailable and a reason for each.
func (s *Sandboxes) Confine(plan *Plan) (*Confinement, error) {
	_ = s.Wait(context.Background())
	var reasons []Reason
	for i := range s.statuses {
		err := s.statuses[i].Err
		if err == nil {
			var e enforcer
			if e, err = s.express(&s.statuses[i], plan); err == nil {
				return &Confinement{enforce: e, plan: plan, reserved: &s.reserved}, nil
			}
		}
		reasons = append(reasons, Reason{Backend: s.statuses[i].Backend, Err: err})
	}
	return nil, &Error{Kind: Unavailable, Reasons: reasons, Err: errors.New("nothing on this machine can enforce the policy")}
}

// Key is the same for plans that come to the same on the same files, and only for those, so that a program which was
// started for one can be kept for the other: unlike [Plan.Key] it tells a place from what has taken its place since. As
// long as programs keep a place from coming into being, it is missing for them; when somebody else has removed what keeps
// it, those programs are not kept from it any more, and are not for the plan.
func (s *Sandboxes) Key(plan *Plan) string {
	return plan.key(func(r *rule) (lost int) {
		held, lost := s.reserved.look(r.path, r.is)
		if r.missing = held || r.isMissing(); !r.missing {
			return 0
		}
		r.is = identity{}
		return lost
	})
}

func (s *Sandboxes) express(status *Status, plan *Plan) (enforcer, error) {
	if status.Backend == Landlock {
		e, err := expressLandlock(plan, &s.starters)
		if err != nil {
			return nil, err
		}
		return e, nil
	}
	e, err := expressBubblewrap(status.Path, plan, &s.starters, &s.shared, &s.reserved, &s.preparer)
	if err != nil {
		return nil, err
	}
	return e, nil
}
