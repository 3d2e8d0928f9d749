// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/bench/figures"
	"github.com/kubedevice/kubedevice/test/bench/scheduler/report"
)

// pluginName is that of the device scheduler that ours loads.
const pluginName = "simgpu"

// programs are the schedulers, kubecri, which makes ours its key, and ours' plugin.
type programs struct {
	upstream, ours, kubecri, plugin string
}

func findPrograms(output string) (programs, error) {
	output, err := filepath.Abs(output)
	if err != nil {
		return programs{}, err
	}
	p := programs{
		upstream: filepath.Join(output, "bench", "bin", "kube-scheduler"),
		ours:     filepath.Join(output, "kube-scheduler"),
		kubecri:  filepath.Join(output, "kubecri"),
		plugin:   filepath.Join(output, "plugins", "scheduler", pluginName+".so"),
	}
	for _, built := range []string{p.upstream, p.ours, p.kubecri, p.plugin} {
		if _, err := os.Stat(built); err != nil {
			return programs{}, fmt.Errorf("%w; make bench builds it", err)
		}
	}
	return p, nil
}

// makeSealKey makes the key with which our schedulers seal, as an administrator does.
func (b *bench) makeSealKey(ctx context.Context) error {
	create := exec.CommandContext(ctx, b.programs.kubecri, "seal-keys", "create", filepath.Dir(b.sealKeys()))
	if printed, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("make a seal key: %w: %s", err, printed)
	}
	keys, err := seal.OpenPrivateKeys(b.sealKeys())
	if err != nil {
		return err
	}
	b.signer = keys.Signer()
	return nil
}

// sealKeys is the file of the seals' key.
func (b *bench) sealKeys() string { return filepath.Join(b.scratch, "seal-keys", "private.pem") }

// process is a running scheduler.
type process struct {
	name    string // that pods are to have for it to bind them
	command *exec.Cmd
	ended   chan struct{}
	log     string
	address string // of its metrics
	devices string // of its read API, "" without
}

// start starts a scheduler of that name that reads all nodes.
func (b *bench) start(name string, ours bool) (*process, error) {
	dir, err := os.MkdirTemp(b.scratch, "scheduler-")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "config.yaml")
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" +
		"leaderElection: {leaderElect: false}\npercentageOfNodesToScore: 100\nprofiles: [{schedulerName: " +
		name + "}]\n" +
		"clientConnection: {kubeconfig: " + b.kubeconfig + ", qps: 5000, burst: 5000}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	arguments := []string{"--config=" + config, "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--authentication-skip-lookup", "--authentication-kubeconfig=" + b.kubeconfig,
		"--authorization-kubeconfig=" + b.kubeconfig,
		"--authorization-always-allow-paths=" + metricsPath + "," + profilePath + "," + readyPath + "," +
			schedulerapi.Prefix + "*"}
	program := b.programs.upstream
	if ours {
		program = b.programs.ours
		if err := os.Symlink(b.programs.plugin, filepath.Join(dir, filepath.Base(b.programs.plugin))); err != nil {
			return nil, err
		}
		arguments = append(arguments, "--devschedpath="+dir, fmt.Sprintf("--device-verdict-cache=%t", !b.noCache),
			"--device-seal-key="+b.sealKeys(), "--device-seal-mode="+string(seal.Enforce))
	}
	var devices string
	if ours && b.whatIfs > 0 {
		if devices, err = freeAddress(); err != nil {
			return nil, err
		}
		_, port, err := net.SplitHostPort(devices)
		if err != nil {
			return nil, err
		}
		authority := filepath.Join(dir, "ca.crt")
		if err := os.WriteFile(authority, b.server.Admin.Config.CAData, 0o600); err != nil {
			return nil, err
		}
		arguments = append(arguments, "--devices-secure-port="+port, "--client-ca-file="+authority)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has its own
	p := &process{name: name, command: exec.Command(program, arguments...), ended: make(chan struct{}), log: log.Name(),
		address: address, devices: devices}
	p.command.Env = append(os.Environ(), b.environment...)
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.command.Wait() // how it ended shows in what it said
	}()
	return p, nil
}

// stop ends the scheduler.
func (p *process) stop() {
	_ = p.command.Process.Kill() // it may have ended by itself
	<-p.ended
}

// signal sends the scheduler a signal.
func (p *process) signal(signal syscall.Signal) error {
	if err := p.command.Process.Signal(signal); err != nil {
		return fmt.Errorf("send the scheduler the signal %v: %w", signal, err)
	}
	return nil
}

// awaitReady waits until the scheduler knows the cluster.
func (p *process) awaitReady(ctx context.Context) error {
	for {
		_, err := p.get(ctx, readyPath)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return errors.New("the scheduler has ended")
		case <-ctx.Done():
			return fmt.Errorf("wait until the scheduler is ready: %w: %w", context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

// said returns the end of the scheduler's log.
func (p *process) said() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4096):])
}

// cpu returns the time for which the process has had a CPU, 0 when it has ended.
func (p *process) cpu() time.Duration {
	spent, err := figures.CPU(p.command.Process.Pid)
	if err != nil {
		return 0
	}
	return spent
}

// memory returns how much memory the scheduler has, with what its metrics say of Go's heap.
func (p *process) memory(metrics readings) (report.Memory, error) {
	const mib = 1 << 20
	memory, err := figures.MemoryOf(p.command.Process.Pid)
	return report.Memory{
		Resident: float64(memory.Resident) / mib, Anonymous: float64(memory.Anonymous) / mib,
		Heap: metrics.value("go_memstats_heap_alloc_bytes") / mib,
	}, err
}

// freeAddress returns an address without a listener.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// writeKubeconfig writes a client's configuration to a file.
func writeKubeconfig(path string, config *rest.Config) error {
	file := api.NewConfig()
	file.Clusters["bench"] = &api.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["bench"] = &api.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	file.Contexts["bench"] = &api.Context{Cluster: "bench", AuthInfo: "bench"}
	file.CurrentContext = "bench"
	return clientcmd.WriteToFile(*file, path)
}
