// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// process is a running scheduler.
type process struct {
	*testing.T
	cmd     *exec.Cmd
	log     string
	ended   chan struct{} // closed when it has
	elected bool          // it is known to have been, see leads
}

// startScheduler starts a scheduler as system:kube-scheduler, until the test ends. more is added to
// its configuration.
func startScheduler(t *testing.T, more ...string) *process {
	t.Helper()
	return startSchedulerWith(t, nil, more...)
}

// startSchedulerWith is startScheduler with more arguments, which win over its own.
func startSchedulerWith(t *testing.T, arguments []string, more ...string) *process {
	t.Helper()
	client, err := server.Client("system:kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	return startSchedulerAt(t, client.Config, arguments, more...)
}

// startSchedulerAt is startSchedulerWith for a scheduler that reaches the API server in another
// variant.
func startSchedulerAt(t *testing.T, server *rest.Config, arguments []string, more ...string) *process {
	t.Helper()
	return startProgram(t, asOurs, server, append([]string{"--devschedpath=" + filepath.Join(t.TempDir(), "none")},
		arguments...), more...)
}

// startUpstream starts upstream's scheduler, which has the place of ours and knows nothing of
// devices, until the test ends.
func startUpstream(t *testing.T, arguments ...string) *process {
	t.Helper()
	client, err := server.Client("system:kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, asUpstream, client.Config, arguments)
}

// startProgram starts ours or upstream's scheduler.
func startProgram(t *testing.T, program string, server *rest.Config, arguments []string, more ...string) *process {
	t.Helper()
	return startConfigured(t, program, server, arguments, "apiVersion: kubescheduler.config.k8s.io/v1\n"+
		"kind: KubeSchedulerConfiguration\nleaderElection: {leaderElect: false}\n"+strings.Join(more, ""))
}

// startConfigured is startProgram with a configuration, to which it adds how the API server is
// reached.
func startConfigured(t *testing.T, program string, server *rest.Config, arguments []string, text string) *process {
	t.Helper()
	dir := t.TempDir()
	config, kubeconfig := filepath.Join(dir, "config.yaml"), writeKubeconfig(t, server)
	text += "clientConnection: {kubeconfig: " + kubeconfig + ", qps: 1000, burst: 1000}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p := &process{T: t, log: log.Name(), ended: make(chan struct{})}
	p.cmd = exec.Command("/proc/self/exe", append([]string{
		"--config=" + config, "--secure-port=0", "--v=4",
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
	}, arguments...)...)
	p.cmd.Env = append(os.Environ(), asScheduler+"="+program)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // killed, or the log says why
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text, _ := os.ReadFile(p.log) // nothing to show then
			t.Logf("the scheduler's log ends with:\n%s", text[max(0, len(text)-16<<10):])
		}
	})
	return p
}

// kill ends the scheduler at once. It may be called again.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// terminate sends the scheduler SIGTERM and waits until it has ended.
func (p *process) terminate() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	<-p.ended
}

// hasEnded reports whether the scheduler has ended.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// writeKubeconfig writes a client's configuration to a file.
func writeKubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	file := api.NewConfig()
	file.Clusters["test"] = &api.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["test"] = &api.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	file.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "test"}
	file.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return path
}
