package executor_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/execwire/execwire/relay/executor"
)

func readDocument(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/remote.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheDocumentNamesWhatIsRead(t *testing.T) {
	text := strings.ReplaceAll(readDocument(t), "\n", " ")
	for _, want := range []string{
		executor.TokenVariable, executor.AccessTokenVariable, "$" + executor.HomeVariable + "/auth.json", executor.KeysVariable, executor.TasksVariable,
		fmt.Sprintf("The first wait is %.0f s", executor.DefaultRetryFirst.Seconds()), fmt.Sprintf("up to %.0f s with", executor.DefaultRetryMost.Seconds()),
		fmt.Sprintf("may take %.0f s", executor.DefaultTimeout.Seconds()),
		fmt.Sprintf("every %.0f s, and given up if it has not answered for %.0f s", executor.DefaultPingInterval.Seconds(), executor.DefaultPongTimeout.Seconds()),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/remote.md does not say %q", want)
		}
	}
}

// TestTheDocumentSaysWhatEnds holds the table against Final.
func TestTheDocumentSaysWhatEnds(t *testing.T) {
	status := func(status int) error { return &executor.StatusError{Status: status} }
	said := map[bool]string{true: "ends", false: "tries again"}
	for what, errs := range map[string][]error{
		"401, 403": {status(401), status(403)},
		"404, other statuses of 3xx and 4xx, an answer that makes no sense": {status(404), status(302), status(400), status(409), &executor.AnswerError{}},
		"credentials that cannot be read":                                   {&executor.CredentialsError{}},
		"no answer, 408, 429, 5xx":                                          {&executor.RequestError{Err: http.ErrHandlerTimeout}, status(408), status(429), status(500), status(503)},
		"the rendezvous closes it with 4001":                                {&executor.SupersededError{}},
		"the rendezvous refuses the websocket, or closes it":                {&executor.ConnectError{Err: errors.New("x")}, &executor.LostError{Err: errors.New("x")}},
	} {
		for _, err := range errs {
			row := fmt.Sprintf("| %s | %s | %s |", what, said[executor.Final(err, false)], said[executor.Final(err, true)])
			if !strings.Contains(readDocument(t), row) {
				t.Errorf("docs/remote.md does not have %q of %T", row, err)
			}
		}
	}
}
