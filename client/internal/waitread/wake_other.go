//go:build !linux && !darwin

package waitread

import "errors"

// wake does not exist: a Read of a console of Windows cannot be interrupted without losing
// what is typed.
type wake struct{}

func newWake() (wake, error) { return wake{}, errors.ErrUnsupported }

func (wake) waitWith(int) (bool, error) { return false, errors.ErrUnsupported }

func (wake) set() {}

func (wake) close() {}
