package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
)

// Options say how to find out what works.
type Options struct {
	// Bubblewrap is the absolute path of the program bwrap. Empty: the first in an absolute directory of PATH.
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

// Sandboxes are the ways to enforce a plan that work here. They may be used concurrently.
type Sandboxes struct {
	statuses []Status // the strongest first
	starters starterFiles
	devices  devices
	reserved placeholders
}

// Probe finds out which backends work here, by starting a program confined by each that tries what it must not. It
// waits for those programs, a few milliseconds each, until ctx is done. The program is this one: its main function
// calls [Main] first. The caller closes what it returns.
func Probe(ctx context.Context, options Options) *Sandboxes {
	s := &Sandboxes{reserved: placeholders{uses: map[string]int{}}}
	bwrap, err := findBubblewrap(options.Bubblewrap)
	s.statuses = []Status{{Backend: Bubblewrap, Err: err, Path: bwrap}, {Backend: Landlock, Err: checkLandlock()}}
	for i := range s.statuses {
		status := &s.statuses[i]
		if slices.Contains(options.Without, status.Backend) {
			status.Err = errors.New("it is switched off by the configuration")
		}
		if status.Err == nil {
			status.Err = s.try(ctx, status)
		}
	}
	return s
}

// Close gives back what was opened for programs to come. Those that were started run on. Nothing may be started after
// it.
func (s *Sandboxes) Close() {
	s.starters.close()
	s.devices.close()
}

func findBubblewrap(path string) (string, error) {
	if path != "" {
		if !filepath.IsAbs(path) {
			return "", errors.New("the path of bwrap is not absolute; give an absolute path")
		}
		if _, err := os.Stat(path); err != nil {
			return "", err
		}
		return path, nil
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		candidate := filepath.Join(dir, "bwrap")
		if info, err := os.Stat(candidate); err == nil && filepath.IsAbs(dir) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", errors.New("there is no program bwrap in PATH; install the package bubblewrap")
}

// Statuses says of each backend whether it works here, the strongest first.
func (s *Sandboxes) Statuses() []Status { return slices.Clone(s.statuses) }

// Confine chooses the strongest backend that works here and can enforce the plan. If there is none it fails with the
// kind Unavailable and a reason for each.
func (s *Sandboxes) Confine(plan *Plan) (*Confinement, error) {
	var reasons []Reason
	for i := range s.statuses {
		err := s.statuses[i].Err
		if err == nil {
			var e enforcer
			if e, err = s.express(&s.statuses[i], plan); err == nil {
				return &Confinement{enforce: e, reserved: &s.reserved}, nil
			}
		}
		reasons = append(reasons, Reason{Backend: s.statuses[i].Backend, Err: err})
	}
	return nil, &Error{Kind: Unavailable, Reasons: reasons, Err: errors.New("nothing on this machine can enforce the policy")}
}

func (s *Sandboxes) express(status *Status, plan *Plan) (enforcer, error) {
	if status.Backend == Landlock {
		e, err := expressLandlock(plan, &s.starters)
		if err != nil {
			return nil, err
		}
		return e, nil
	}
	e, err := expressBubblewrap(status.Path, plan, &s.starters, &s.devices, &s.reserved)
	if err != nil {
		return nil, err
	}
	return e, nil
}
