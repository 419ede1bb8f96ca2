package preview

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/relay/rendezvous"
)

// linkParameter is the parameter of a link that has the signed claim.
const linkParameter = "execwire-preview"

// claim is what a link certifies.
type claim struct {
	ID        string `json:"i"`
	Executor  string `json:"e"`
	Port      uint16 `json:"o"`
	Principal string `json:"p"`
	Until     int64  `json:"t"` // Unix time
}

// link is a link that was not revoked. It may have expired.
type link struct {
	claim  claim
	valid  context.Context // done once it is revoked, and when the previews close
	revoke context.CancelCauseFunc
}

func (l *link) expires() time.Time { return time.Unix(l.claim.Until, 0) }

func (l *link) expired() bool { return !time.Now().Before(l.expires()) }

var (
	errExpired = errors.New("the link of the preview has expired")
	errRevoked = errors.New("the link of the preview was revoked")
)

// Calls are the requests about links for [rendezvous.Config].
func (p *Previews) Calls() map[string]func(*http.Request, auth.Member) (any, error) {
	return map[string]func(*http.Request, auth.Member) (any, error){
		"GET /v1/previews":         p.listLinks,
		"POST /v1/previews":        p.makeLink,
		"POST /v1/previews/revoke": p.revokeLink,
	}
}

// defaultLifetime is the lifetime of a link if none is requested.
const defaultLifetime = time.Hour

// makeLink makes a link for a principal that may connect to its executor.
func (p *Previews) makeLink(r *http.Request, caller auth.Member) (any, error) {
	var body struct {
		Executor string   `json:"executor_id"`
		Port     int64    `json:"port"`
		Lifetime *float64 `json:"lifetime_seconds"`
	}
	if err := p.decode(r, &body); err != nil {
		return nil, err
	}
	to, most := target{executor: body.Executor, port: uint16(body.Port)}, p.config.Limits.LinkLifetime
	lifetime := min(defaultLifetime, most)
	if body.Lifetime != nil {
		if *body.Lifetime < 1 || *body.Lifetime > most.Seconds() {
			return nil, invalid("the lifetime of a link is 1s to %v (preview_link_lifetime), not %vs", most, *body.Lifetime)
		}
		lifetime = time.Duration(*body.Lifetime * float64(time.Second))
	}
	switch {
	case body.Port < 1 || body.Port > 65535:
		return nil, invalid("the port must be 1 to 65535, not %d", body.Port)
	case !to.hasHost():
		return nil, invalid("executor %.300q has no preview: its id is part of a name in DNS, so it needs lower-case letters, digits and -, and at most %d bytes for port %d: "+
			"give the executor another id, or use execwire port-forward", to.executor, maxLabel-len(target{port: to.port}.hostname(""))+1, to.port)
	}
	if err := rendezvous.MayConnect(caller, to.executor); err != nil {
		return nil, err
	}
	end, err := p.config.Audit.Begin(r, caller.Principal.Name, &audit.Record{Action: "preview.link", Executor: to.executor, Address: portOf(to)})
	if err != nil {
		return nil, err
	}
	l, err := p.addLink(claim{ID: rand.Text(), Executor: to.executor, Port: to.port, Principal: caller.Principal.Name, Until: time.Now().Add(lifetime).Unix()})
	end(err)
	if err != nil {
		return nil, err
	}
	p.config.Logger.Info("a link to a preview was made", "executor", to.executor, "port", to.port, "principal", l.claim.Principal, "expires", l.expires().UTC(), "link", l.claim.ID)
	return p.describe(r, l.claim), nil
}

// describe returns what its principal sees of a link.
func (p *Previews) describe(r *http.Request, c claim) map[string]any {
	to := target{executor: c.Executor, port: c.Port}
	return map[string]any{"url": p.linkURL(r, to, p.signer.Sign(c)), "executor_id": c.Executor, "port": c.Port, "expires": time.Unix(c.Until, 0).UTC()}
}

// listLinks lists the valid links of the caller, those that expire first at the beginning.
func (p *Previews) listLinks(r *http.Request, caller auth.Member) (any, error) {
	if p.config.Domain == "" {
		return nil, errOff
	}
	list := []map[string]any{} // not null
	for _, c := range p.validLinks(caller.Principal.Name) {
		list = append(list, p.describe(r, c))
	}
	return map[string]any{"previews": list}, nil
}

// validLinks returns the valid links of a principal in the order of their expiry.
func (p *Previews) validLinks(principal string) (valid []claim) {
	p.mu.Lock()
	for _, l := range p.links {
		if l.claim.Principal == principal && !l.expired() {
			valid = append(valid, l.claim)
		}
	}
	p.mu.Unlock()
	slices.SortFunc(valid, func(a, b claim) int { return cmp.Or(cmp.Compare(a.Until, b.Until), cmp.Compare(a.ID, b.ID)) })
	return valid
}

// linkURL returns the URL of a link for clients that reach the hub as that of r does.
func (p *Previews) linkURL(r *http.Request, to target, signed string) string {
	base, err := url.Parse(p.config.PublicURL)
	if p.config.PublicURL == "" || err != nil {
		base = &url.URL{Scheme: schemeOf(r.TLS != nil), Host: r.Host}
	}
	made := url.URL{Scheme: base.Scheme, Host: to.hostname(p.config.Domain), Path: "/", RawQuery: linkParameter + "=" + signed}
	if port := base.Port(); port != "" {
		made.Host += ":" + port
	}
	return made.String()
}

// addLink adds a link, unless its principal has too many.
func (p *Previews) addLink(c claim) (*link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for id, other := range p.links {
		switch {
		case other.expired():
			p.dropLink(id, errExpired)
		case other.claim.Principal == c.Principal:
			n++
		}
	}
	switch limit := p.config.Limits.LinksPerPrincipal; {
	case p.closed:
		return nil, rendezvous.ShuttingDown()
	case n >= limit:
		return nil, rendezvous.LimitReached("preview_link_limit", "preview_links_per_principal", limit, time.Second)
	}
	l := &link{claim: c}
	l.valid, l.revoke = context.WithCancelCause(p.closing)
	p.links[c.ID] = l
	return l, nil
}

// dropLink removes a link and ends its requests. mu is held.
func (p *Previews) dropLink(id string, why error) {
	p.links[id].revoke(why)
	delete(p.links, id)
}

// findLink returns the link of a signed claim, if it is valid now for the target.
func (p *Previews) findLink(signed string, to target) (*link, error) {
	var c claim
	if !p.signer.Verify(signed, &c) {
		return nil, unauthorized("the link of the preview is not one that this hub has made since it started: ask for a new one")
	}
	if c.Executor != to.executor || c.Port != to.port {
		return nil, unauthorized(fmt.Sprintf("the link is for port %d of executor %s: ask for one for this preview", c.Port, c.Executor))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch l := p.links[c.ID]; {
	case l != nil && !l.expired():
		return l, nil
	case l != nil || !time.Now().Before(time.Unix(c.Until, 0)):
		return nil, unauthorized(errExpired.Error() + ": ask for a new one")
	}
	return nil, unauthorized(errRevoked.Error() + ": ask for a new one")
}

// revokeLink ends a link of the caller.
func (p *Previews) revokeLink(r *http.Request, caller auth.Member) (any, error) {
	var body struct {
		URL string `json:"url"`
	}
	if err := p.decode(r, &body); err != nil {
		return nil, err
	}
	made, err := url.Parse(body.URL)
	if err != nil {
		return nil, invalid("the url is not a link of a preview: it cannot be parsed")
	}
	signed, _, ok := cutLink(made.RawQuery)
	if !ok {
		return nil, invalid("the url is not a link of a preview: it has no %s", linkParameter)
	}
	var c claim
	known := p.signer.Verify(signed, &c) && c.Principal == caller.Principal.Name
	end, err := p.config.Audit.Begin(r, caller.Principal.Name, &audit.Record{Action: "preview.revoke", Executor: c.Executor, Address: portOf(target{executor: c.Executor, port: c.Port})})
	if err != nil {
		return nil, err
	}
	err = p.revoke(c, caller, known)
	end(err)
	if err != nil {
		return nil, err
	}
	p.config.Logger.Info("a link to a preview was revoked", "executor", c.Executor, "port", c.Port, "principal", c.Principal, "link", c.ID)
	return map[string]any{"executor_id": c.Executor, "port": c.Port}, nil
}

// portOf names the port of a target, in the audit log.
func portOf(t target) string { return ":" + strconv.FormatUint(uint64(t.port), 10) }

// revoke ends the link of a claim, if it is known.
func (p *Previews) revoke(c claim, caller auth.Member, known bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !known || p.links[c.ID] == nil {
		return &rendezvous.Refusal{Status: http.StatusNotFound, Code: "preview_not_found",
			Message: fmt.Sprintf("principal %s has no such link: it has expired, was revoked, belongs to another principal, or is older than the start of the hub", caller.Principal)}
	}
	p.dropLink(c.ID, errRevoked)
	return nil
}

var errOff = &rendezvous.Refusal{Status: http.StatusNotFound, Code: "previews_off", Message: "the hub has no previews: set preview_domain (--preview-domain) of the hub"}

// decode decodes the body of a call.
func (p *Previews) decode(r *http.Request, body any) error {
	if p.config.Domain == "" {
		return errOff
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(body); err != nil {
		return invalid("the body is not the JSON of this request: %v", err)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &rendezvous.Refusal{Status: http.StatusBadRequest, Code: "invalid_preview", Message: fmt.Sprintf(format, args...)}
}

// cutLink returns the signed claim in a query, and the rest of the query as it is.
func cutLink(query string) (signed, rest string, ok bool) {
	pairs := strings.Split(query, "&")
	i := slices.IndexFunc(pairs, func(pair string) bool { return strings.HasPrefix(pair, linkParameter+"=") })
	if i < 0 {
		return "", query, false
	}
	signed = pairs[i][len(linkParameter)+1:]
	pairs = slices.DeleteFunc(pairs, func(pair string) bool { return strings.HasPrefix(pair, linkParameter+"=") })
	return signed, strings.Join(pairs, "&"), true
}
