package server

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Messages of all sizes, also such that repeat input, become pieces that follow each other.
// The queue changes neither a message nor a piece afterwards.
func TestInputQueue_PiecesAreTheInput(t *testing.T) {
	const window, piece, total = 4096, 512, 200_000
	rng := rand.New(rand.NewPCG(1, 2))
	content := make([]byte, total)
	for i := range content {
		content[i] = byte(rng.Uint32())
	}
	q := newInputQueue(window, piece)
	q.begin(0)
	var sent, accepted uint64
	var messages, pieces [][]byte
	for accepted < total {
		if end := min(total, accepted+window); sent < end && rng.IntN(2) == 0 {
			from := sent - min(sent, rng.Uint64N(3)*rng.Uint64N(100))
			to := min(total, sent+1+rng.Uint64N(1<<rng.IntN(13)))    // perhaps beyond the window
			data := slices.Grow(slices.Clone(content[from:to]), 100) // spare capacity of the client
			messages = append(messages, data)
			all, err := q.push(&execwirev1.RunStdin{Offset: from, Data: data})
			if err != nil || all != (to <= accepted+window) {
				t.Fatalf("push of %d to %d after %d = %v, %v", from, to, accepted, all, err)
			}
			sent = max(sent, min(to, accepted+window))
			continue
		}
		in, ok := q.take()
		if !ok {
			if accepted != sent {
				t.Fatalf("no piece after %d, and %d bytes were sent", accepted, sent)
			}
			continue
		}
		if in.offset != accepted || len(in.data) == 0 || len(in.data) > piece || in.end {
			t.Fatalf("piece at %d of %d bytes, end %v, after %d", in.offset, len(in.data), in.end, accepted)
		}
		pieces = append(pieces, in.data)
		accepted += uint64(len(in.data))
		q.accepted(accepted)
	}
	if !bytes.Equal(bytes.Join(pieces, nil), content) {
		t.Error("the pieces are not the input")
	}
	for _, data := range messages {
		if !bytes.Contains(content, data) {
			t.Fatal("the queue changed a message")
		}
		if spare := data[len(data):cap(data)]; slices.ContainsFunc(spare, func(b byte) bool { return b != 0 }) {
			t.Fatal("the queue wrote behind a message")
		}
	}
}

// The end comes once and last, whether it was sent with data, alone, again, or by
// half-closing; and not after the process accepts no more.
func TestInputQueue_EndComesOnce(t *testing.T) {
	ends := map[string]func(q *inputQueue) error{
		"with data": func(q *inputQueue) error {
			return pushAll(q, &execwirev1.RunStdin{Offset: 3, Data: []byte("def"), EndOfFile: true})
		},
		"alone": func(q *inputQueue) error {
			if err := pushAll(q, &execwirev1.RunStdin{Offset: 3, Data: []byte("def")}); err != nil {
				return err
			}
			return pushAll(q, &execwirev1.RunStdin{Offset: 6, EndOfFile: true})
		},
		"half-close": func(q *inputQueue) error {
			defer q.end()
			return pushAll(q, &execwirev1.RunStdin{Offset: 3, Data: []byte("def")})
		},
	}
	for name, end := range ends {
		for _, discarded := range []bool{false, true} {
			q := newInputQueue(10, 2)
			q.begin(0)
			if err := pushAll(q, &execwirev1.RunStdin{Data: []byte("abc")}); err != nil {
				t.Fatal(err)
			}
			if err := end(q); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			q.end()
			if err := pushAll(q, &execwirev1.RunStdin{Offset: 6, Data: []byte("x"), EndOfFile: true}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want := "ab" + "cd" + "ef" + "."
			if discarded {
				q.discard()
				want = ""
			}
			got := ""
			for in, ok := q.take(); ok; in, ok = q.take() {
				got += string(in.data)
				if in.end {
					got += "."
				}
			}
			if got != want {
				t.Errorf("%s, discarded %v: got %q, want %q", name, discarded, got, want)
			}
		}
	}
}

// pushAll pushes a message that fits into the window.
func pushAll(q *inputQueue, m *execwirev1.RunStdin) error {
	all, err := q.push(m)
	if err == nil && !all {
		return errors.New("it does not fit")
	}
	return err
}
