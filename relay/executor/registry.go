package executor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxURLBytes is the longest URL of a rendezvous that a registry may give.
const maxURLBytes = 8 << 10

// askOptions are what requests need.
type askOptions struct {
	timeout time.Duration
	tls     *tls.Config
}

// registry registers one executor. It is for one goroutine.
type registry struct {
	asker       *asker
	url         string
	self        http.Header // what the executor says about itself
	credentials Credentials
	plain       bool // a rendezvous on another host may be ws://
}

// registration is the answer of a registry.
type registration struct {
	executorID string // which may be another one than was asked for
	url        *url.URL
	epoch      int64 // 0 if the registry knows none
}

func newRegistry(o Options) *registry {
	self := http.Header{"Accept": {"*/*"}, "User-Agent": {"execwire"}, "Execwire-Instance": {o.Instance}}
	if o.Version != "" {
		self.Set("Execwire-Version", percentEncode(o.Version))
		self.Set("User-Agent", "execwire/"+percentEncode(o.Version))
	}
	if o.Name != "" {
		self.Set("Execwire-Name", percentEncode(o.Name))
	}
	if o.Streams > 0 {
		self.Set("Execwire-Streams", strconv.Itoa(o.Streams))
	}
	if len(o.Labels) > 0 {
		self.Set("Execwire-Labels", encodeLabels(o.Labels))
	}
	return &registry{
		asker:       newAsker(whoRegistry, askOptions{o.Timeout, o.TLS}),
		url:         o.BaseURL + "/cloud/executor/" + o.ExecutorID + "/register",
		self:        self,
		credentials: o.Credentials,
		plain:       o.AllowPlainText,
	}
}

// register asks once, and once more if the credentials can be renewed and were
// refused.
func (r *registry) register(ctx context.Context) (registration, error) {
	answer, err := r.try(ctx)
	status, ok := errors.AsType[*StatusError](err)
	if renewing, can := r.credentials.(renewer); ok && can && status.Who == whoRegistry && status.refused() && renewing.renew() {
		answer, err = r.try(ctx)
	}
	return answer, err
}

// renewer are credentials of which a part can be had anew.
type renewer interface {
	// renew drops what was refused and reports whether something else may be had.
	renew() bool
}

func (r *registry) try(ctx context.Context) (registration, error) {
	header := r.self.Clone()
	var secret string
	if r.credentials != nil {
		shown, err := r.credentials.Header(ctx)
		if err != nil {
			return registration{}, err
		}
		for name, values := range shown {
			header[http.CanonicalHeaderKey(name)] = values
		}
		_, secret, _ = strings.Cut(shown.Get("Authorization"), " ")
	}
	members, err := r.asker.ask(ctx, http.MethodPost, r.url, header, nil, secret)
	if err != nil {
		return registration{}, r.explain(err)
	}
	return r.parse(members)
}

// explain adds what to do about a status.
func (r *registry) explain(err error) error {
	status, ok := errors.AsType[*StatusError](err)
	if !ok {
		return err
	}
	switch {
	case status.refused() && r.credentials == nil:
		status.Fix = "give the executor a token with --remote-token-file"
	case status.refused():
		status.Fix = "the credentials are " + r.credentials.String() + ": have them renewed, or ask whether they may register this executor"
	case status.Status == http.StatusNotFound:
		status.Fix = "there is no registry at the URL of --remote, or it does not know this --executor-id"
	case status.Status/100 == 3:
		status.Fix = "redirects are not followed with credentials: give --remote the URL that it has moved to"
	}
	return err
}

func (r *registry) parse(members object) (registration, error) {
	id, ok := members.text("executor_id")
	if !ok || textProblem(id, MaxIDBytes) != "" {
		return registration{}, &AnswerError{Who: whoRegistry, Problem: "it has no executor_id that can be shown"}
	}
	text, ok := members.text("url")
	if !ok || len(text) > maxURLBytes {
		return registration{}, &AnswerError{Who: whoRegistry, Problem: fmt.Sprintf("it has no url of at most %d bytes", maxURLBytes)}
	}
	to, problem := urlProblem(text, "wss", "ws", true, r.plain)
	if problem != "" {
		return registration{}, &AnswerError{Who: whoRegistry, Problem: "its url " + problem}
	}
	return registration{executorID: id, url: to, epoch: members.number("epoch")}, nil
}
