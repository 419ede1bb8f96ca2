package session

import (
	"context"
	"errors"
)

// feed is the queue of what the processes of a session have to say.
type feed struct{}

func (f *feed) next(context.Context, int) (Delivery, error) {
	return Delivery{}, errors.New("feeds do not work yet")
}
