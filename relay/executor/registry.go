package executor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// maxURLBytes is the maximum length of a rendezvous URL.
const maxURLBytes = 8 << 10

// registry registers one executor. It is for one goroutine.
type registry struct {
	client      *client
	url         string
	headers     http.Header // headers that describe the executor
	credentials Credentials
}

// registration is the response of a registry.
type registration struct {
	executorID string // may differ from the requested one
	url        *url.URL
	epoch      int64 // 0 if unknown
}

func newRegistry(o Options) *registry {
	headers := http.Header{"Accept": {"*/*"}, "User-Agent": {"execwire"}, "Execwire-Instance": {uuid.NewString()}}
	if o.Version != "" {
		headers.Set("Execwire-Version", percentEncode(o.Version))
		headers.Set("User-Agent", "execwire/"+percentEncode(o.Version))
	}
	if o.Name != "" {
		headers.Set("Execwire-Name", percentEncode(o.Name))
	}
	if o.Streams > 0 {
		headers.Set("Execwire-Streams", strconv.Itoa(o.Streams))
	}
	if len(o.Labels) > 0 {
		headers.Set("Execwire-Labels", encodeLabels(o.Labels))
	}
	return &registry{
		client:      newClient(serviceRegistry, o.Timeout, o.TLS),
		url:         o.BaseURL + "/cloud/executor/" + o.ExecutorID + "/register",
		headers:     headers,
		credentials: o.Credentials,
	}
}

// register sends a registration, and repeats it once if the credentials were
// rejected and can be renewed.
func (r *registry) register(ctx context.Context) (registration, error) {
	reg, err := r.try(ctx)
	status, ok := errors.AsType[*StatusError](err)
	if credentials, renewable := r.credentials.(renewer); ok && renewable && status.Service == serviceRegistry && status.rejected() && credentials.renew() {
		reg, err = r.try(ctx)
	}
	return reg, err
}

// renewer is implemented by credentials that can be renewed in part.
type renewer interface {
	// renew drops the rejected part and reports whether a new one can be
	// obtained.
	renew() bool
}

func (r *registry) try(ctx context.Context) (registration, error) {
	header := r.headers.Clone()
	var secret string
	if r.credentials != nil {
		auth, err := r.credentials.Header(ctx)
		if err != nil {
			return registration{}, err
		}
		for name, values := range auth {
			header[http.CanonicalHeaderKey(name)] = values
		}
		_, secret, _ = strings.Cut(auth.Get("Authorization"), " ")
	}
	members, err := r.client.do(ctx, http.MethodPost, r.url, header, nil, secret)
	if err != nil {
		return registration{}, r.explain(err)
	}
	return r.parse(members)
}

// explain adds a fix to a StatusError.
func (r *registry) explain(err error) error {
	status, ok := errors.AsType[*StatusError](err)
	if !ok {
		return err
	}
	switch {
	case status.rejected() && r.credentials == nil:
		status.Fix = "give the executor a token with --remote-token-file"
	case status.rejected():
		status.Fix = "the credentials used are " + r.credentials.String() + ": renew them, or check whether they may register this executor"
	case status.Status == http.StatusNotFound:
		status.Fix = "there is no registry at the URL of --remote, or it does not know this --executor-id"
	case status.Status/100 == 3:
		status.Fix = "redirects are not followed with credentials: set --remote to the new URL"
	}
	return err
}

func (r *registry) parse(members object) (registration, error) {
	id, ok := members.stringMember("executor_id")
	if !ok || textProblem(id, MaxIDBytes) != "" {
		return registration{}, responseError(serviceRegistry, "no valid executor_id")
	}
	text, ok := members.stringMember("url")
	if !ok || len(text) > maxURLBytes {
		return registration{}, responseError(serviceRegistry, fmt.Sprintf("no url of at most %d bytes", maxURLBytes))
	}
	to, problem := urlProblem(text, "wss", "ws", true)
	if problem != "" {
		return registration{}, responseError(serviceRegistry, "url "+problem)
	}
	return registration{executorID: id, url: to, epoch: members.intMember("epoch")}, nil
}
