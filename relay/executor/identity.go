package executor

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// What a signed token of an agent identity has to say, and where its authority
// is unless the environment names another.
const (
	identityIssuer   = "https://chatgpt.com/codex-backend/agent-identity"
	identityAudience = "codex-app-server"
	identitySkew     = time.Minute
	defaultKeysURL   = "https://chatgpt.com/backend-api"
	defaultTasksURL  = "https://auth.openai.com/api/accounts"
)

var (
	goodRuntimeID = regexp.MustCompile(`^[A-Za-z0-9_-]([A-Za-z0-9_.-]{0,254}[A-Za-z0-9_-])?$`)
	errNotAHeader = errors.New("it cannot be sent in a header")
)

// identity are the credentials of an agent: a signed token that is checked, a
// task that is registered once, and an assertion that is made for each
// registration. It is for one goroutine.
type identity struct {
	token string
	keys  *authority
	tasks *authority
	now   func() time.Time

	agent *agent // once the token was checked
	task  string // once there is one
	fresh bool   // the task was made for the registration under way
}

// agent is what the signed token says.
type agent struct {
	runtimeID string
	key       ed25519.PrivateKey
	account   string
	fedramp   bool
	expires   time.Time
}

// authority is one of the services that know agent identities.
type authority struct {
	asker *asker
	base  string
}

func newIdentity(getenv func(string) string) (*identity, error) {
	token := strings.TrimSpace(getenv(AccessTokenVariable))
	if token == "" {
		return nil, &CredentialsError{Problem: AccessTokenVariable + " is required when --use-agent-identity-auth is set", permanent: true}
	}
	parts := strings.Split(token, ".")
	if !isToken([]byte(token)) || len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return nil, &CredentialsError{Problem: "invalid agent identity JWT format", Fix: AccessTokenVariable + " has to hold one signed token", permanent: true}
	}
	keys, err := newAuthority(KeysVariable, getenv(KeysVariable), defaultKeysURL)
	if err != nil {
		return nil, err
	}
	// Whoever names another authority for one of the two means both.
	tasks, err := newAuthority(TasksVariable, getenv(TasksVariable), cmp.Or(strings.TrimRight(strings.TrimSpace(getenv(KeysVariable)), "/"), defaultTasksURL))
	if err != nil {
		return nil, err
	}
	return &identity{token: token, keys: keys, tasks: tasks, now: time.Now}, nil
}

func newAuthority(variable, base, standard string) (*authority, error) {
	base = cmp.Or(strings.TrimRight(strings.TrimSpace(base), "/"), standard)
	if _, problem := urlProblem(base, "https", "http", false, false); problem != "" {
		return nil, &CredentialsError{Problem: variable + " " + problem, Fix: "write it as https://HOST[:PORT][/PATH], or http:// on loopback", permanent: true}
	}
	return &authority{asker: newAsker(whoAuthority, askOptions{timeout: DefaultTimeout}), base: base}, nil
}

// String implements Credentials.
func (i *identity) String() string { return "the agent identity in " + AccessTokenVariable }

// GoString keeps the token out of %#v.
func (i *identity) GoString() string { return i.String() }

// Header implements Credentials.
func (i *identity) Header(ctx context.Context) (http.Header, error) {
	if i.agent == nil {
		agent, err := i.check(ctx)
		if err != nil {
			return nil, err
		}
		i.agent = agent
	}
	if !i.now().Before(i.agent.expires.Add(identitySkew)) {
		return nil, &CredentialsError{Problem: fmt.Sprintf("the agent identity in %s expired at %v", AccessTokenVariable, i.agent.expires.UTC()),
			Fix: "start the executor with a new one", permanent: true}
	}
	i.fresh = i.task == ""
	if i.fresh {
		task, err := i.registerTask(ctx)
		if err != nil {
			return nil, err
		}
		i.task = task
	}
	header := http.Header{"Authorization": {"AgentAssertion " + i.agent.assertion(i.task, timestamp(i.now()))}}
	return header, addAccount(header, i.agent.account, i.agent.fedramp)
}

// renew implements renewer: a task may end before its agent does.
func (i *identity) renew() bool {
	i.task = ""
	return !i.fresh
}

// check asks for the keys of the authority and returns what the token says if
// one of them signed it.
func (i *identity) check(ctx context.Context) (*agent, error) {
	path := "/agent-identities/jwks"
	if strings.Contains(i.keys.base, "/backend-api") {
		path = "/wham" + path
	}
	set, err := i.keys.asker.ask(ctx, http.MethodGet, i.keys.base+path, http.Header{"Accept": {"application/json"}}, nil)
	if err != nil {
		return nil, err
	}
	claims := jwt.MapClaims{}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodRS256.Alg(), jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithIssuer(identityIssuer), jwt.WithAudience(identityAudience), jwt.WithExpirationRequired(),
		jwt.WithLeeway(identitySkew), jwt.WithStrictDecoding(), jwt.WithTimeFunc(i.now),
	)
	if _, err := parser.ParseWithClaims(i.token, claims, keyOf(set)); err != nil {
		return nil, &CredentialsError{Problem: "the agent identity in " + AccessTokenVariable + " is refused", Err: err}
	}
	agent, err := newAgent(claims)
	if err != nil {
		return nil, &CredentialsError{Problem: "the agent identity in " + AccessTokenVariable + " cannot be used", Err: err, permanent: true}
	}
	return agent, nil
}

// newAgent reads the claims of a token that was checked. Errors hold nothing of
// the key.
func newAgent(claims jwt.MapClaims) (*agent, error) {
	text := func(name string) string { text, _ := claims[name].(string); return text }
	runtimeID := text("agent_runtime_id")
	if !goodRuntimeID.MatchString(runtimeID) {
		return nil, errors.New("its agent_runtime_id is missing or cannot be part of a path")
	}
	der, err := base64.StdEncoding.DecodeString(text("agent_private_key"))
	if err != nil {
		return nil, errors.New("its agent_private_key is not base64")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	key, isEd25519 := parsed.(ed25519.PrivateKey)
	if err != nil || !isEd25519 {
		return nil, errors.New("its agent_private_key is not a key of Ed25519 in PKCS#8")
	}
	account := text("account_id")
	if !isToken([]byte(account)) {
		return nil, errors.New("its account_id is missing or cannot be sent")
	}
	expires, err := claims.GetExpirationTime()
	if err != nil || expires == nil {
		return nil, errors.New("it has no exp")
	}
	fedramp, _ := claims["chatgpt_account_is_fedramp"].(bool)
	return &agent{runtimeID: runtimeID, key: key, account: account, fedramp: fedramp, expires: expires.Time}, nil
}
