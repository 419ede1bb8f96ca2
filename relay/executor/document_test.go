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

func TestDocument_NamesSourcesAndLimits(t *testing.T) {
	text := strings.ReplaceAll(readDocument(t), "\n", " ")
	for _, want := range []string{
		executor.TokenVariable, executor.AccessTokenVariable, "$" + executor.HomeVariable + "/auth.json", executor.KeysVariable, executor.TasksVariable,
		fmt.Sprintf("The first wait is %.0f s", executor.DefaultRetryMin.Seconds()), fmt.Sprintf("up to %.0f s", executor.DefaultRetryMax.Seconds()),
		fmt.Sprintf("may take %.0f s", executor.DefaultTimeout.Seconds()),
		fmt.Sprintf("every %.0f s and given up after %.0f s without an answer", executor.DefaultPingInterval.Seconds(), executor.DefaultPongTimeout.Seconds()),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/remote.md does not say %q", want)
		}
	}
}

// The table of final errors in the document matches Final.
func TestDocument_TableOfFinalErrors(t *testing.T) {
	status := func(status int) error { return &executor.StatusError{Status: status} }
	outcome := map[bool]string{true: "ends", false: "retries"}
	for what, errs := range map[string][]error{
		"401, 403": {status(401), status(403)},
		"404, other statuses of 3xx and 4xx, an invalid answer": {status(404), status(302), status(400), status(409), errors.New("an invalid answer")},
		"unreadable credentials":                                {&executor.CredentialsError{}},
		"no answer, 408, 429, 5xx":                              {&executor.RequestError{Err: http.ErrHandlerTimeout}, status(408), status(429), status(500), status(503)},
		"the rendezvous closes it with 4001":                    {&executor.SupersededError{}},
	} {
		for _, err := range errs {
			row := fmt.Sprintf("| %s | %s | %s |", what, outcome[executor.Final(err, false)], outcome[executor.Final(err, true)])
			if !strings.Contains(readDocument(t), row) {
				t.Errorf("docs/remote.md does not have %q of %T", row, err)
			}
		}
	}
}
