// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"
	versioninfo "k8s.io/apimachinery/pkg/version"
	basecompatibility "k8s.io/component-base/compatibility"
)

func TestAnOlderServerIsEmulated(t *testing.T) {
	for name, test := range map[string]struct {
		server    versioninfo.Info
		want      string
		wantError string
	}{
		"one minor version older": {server: versioninfo.Info{Major: "1", Minor: "36"}, want: "kube=1.36"},
		"the oldest":              {server: versioninfo.Info{Major: "1", Minor: "34"}, want: "kube=1.34"},
		"a provider's build":      {server: versioninfo.Info{Major: "1", Minor: "35+"}, want: "kube=1.35"},
		"the same":                {server: versioninfo.Info{Major: "1", Minor: "37"}},
		"newer":                   {server: versioninfo.Info{Major: "1", Minor: "38"}},
		"one that emulates itself": {
			server: versioninfo.Info{Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "35"},
			want:   "kube=1.35",
		},
		"too old": {
			server:    versioninfo.Info{Major: "1", Minor: "33", GitVersion: "v1.33.9"},
			wantError: "the API server is Kubernetes v1.33.9, and this scheduler works with 1.34..1.37",
		},
		"nonsense": {
			server:    versioninfo.Info{GitVersion: "v?"},
			wantError: `the API server says that its version is "v?"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			own := basecompatibility.NewEffectiveVersionFromString("1.37.1", "1.34", "1.34")
			got, err := toEmulate(&test.server, own)
			if got != test.want {
				t.Errorf("the value of the flag is %q, want %q", got, test.want)
			}
			if test.wantError == "" && err != nil ||
				test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)) {
				t.Errorf("the error is %v, want %q", err, test.wantError)
			}
		})
	}
}

// newCommand returns a command with the flags of upstream's that matter.
func newCommand(t *testing.T, arguments ...string) *cobra.Command {
	t.Helper()
	cmd := &cobra.Command{
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE:              func(*cobra.Command, []string) error { return nil },
		SilenceUsage:      true, SilenceErrors: true,
	}
	for _, name := range []string{"kubeconfig", "config", "master", "version", "write-config-to"} {
		cmd.Flags().String(name, "", "")
	}
	cmd.Flags().StringSlice(emulatedVersion, nil, "")
	cmd.SetArgs(arguments)
	Emulate(cmd)
	return cmd
}

func emulated(cmd *cobra.Command) string { return cmd.Flag(emulatedVersion).Value.String() }

// serve returns the address of a server whose answers are those of answer.
func serve(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

func version134(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"major":"1","minor":"34","gitVersion":"v1.34.4"}`))
}

func TestTheServerIsQueried(t *testing.T) {
	older := serve(t, version134)
	forbids := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"a server that is older":  {[]string{"--master=" + older}, "[kube=1.34]"},
		"the flag wins":           {[]string{"--master=" + older, "--emulated-version=kube=1.36"}, "[kube=1.36]"},
		"one that forbids it":     {[]string{"--master=" + forbids}, "[]"},
		"only the version":        {[]string{"--master=" + older, "--version=true"}, "[]"},
		"only the configuration":  {[]string{"--master=" + older, "--write-config-to=f"}, "[]"},
		"an unreadable --config":  {[]string{"--config=/nonexistent"}, "[]"},
		"no client configuration": {nil, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand(t, test.arguments...)
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := emulated(cmd); got != test.want {
				t.Errorf("the emulated version is %s, want %s", got, test.want)
			}
		})
	}
}

func TestAServerThatIsAwayIsWaitedFor(t *testing.T) {
	for name, away := range map[string]http.HandlerFunc{
		"it cuts connections": func(w http.ResponseWriter, _ *http.Request) {
			connection, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = connection.Close()
		},
		"it is not ready yet": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			address := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) < 3 {
					away(w, r)
					return
				}
				version134(w, r)
			})
			cmd := newCommand(t, "--master="+address)
			if err := cmd.ExecuteContext(t.Context()); err != nil || emulated(cmd) != "[kube=1.34]" {
				t.Errorf("the emulated version is %s, %v", emulated(cmd), err)
			}
		})
	}
}
