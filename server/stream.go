package server

import (
	"errors"
	"io"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// receiver is the receiving side of a stream.
type receiver[M any] interface{ Recv() (*M, error) }

// receiveFirst receives the first message of a stream. missing is what the error says
// if there is none.
func receiveFirst[M any](stream receiver[M], missing string) (*M, error) {
	m, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, unexpectedMessage(missing)
	}
	return m, err
}

// receiveRest handles messages until handle returns an error or the stream ends, which
// is io.EOF. It blocks on nothing but the stream and handle.
func receiveRest[M any](stream receiver[M], handle func(*M) error) error {
	for {
		m, err := stream.Recv()
		if err == nil {
			err = handle(m)
		}
		if err != nil {
			return err
		}
	}
}

func unexpectedMessage(text string) error {
	return newStatus(codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE, text)
}
