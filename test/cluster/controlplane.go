// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/test/pki"
	"github.com/kubedevice/kubedevice/test/sandbox"
)

// controllers are the controllers that devices, workloads and tests need. All of them together
// would take seconds more to make the default service account.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"daemonset-controller",
	"deployment-controller",
	"disruption-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"node-lifecycle-controller",
	"pod-garbage-collector-controller",
	"replicaset-controller",
	"resourcequota-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"taint-eviction-controller",
}

// writeCredentials makes the cluster's certificates, keys and kubeconfigs. hostURL is where the
// machine reaches the API server.
func (c *Cluster) writeCredentials(hostURL string) error {
	authority, err := pki.NewAuthority("kubedevice-cluster")
	if err != nil {
		return err
	}
	server, err := authority.Server(
		[]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"},
		[]net.IP{net.ParseIP(controlPlaneIP), net.ParseIP(serviceIP), net.IPv4(127, 0, 0, 1)},
	)
	if err != nil {
		return err
	}
	kubeletClient, err := authority.Client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	serviceAccounts, err := pki.NewKeyPair()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt":               authority.Certificate,
		"apiserver.crt":        server.Public,
		"apiserver.key":        server.Private,
		"kubelet-client.crt":   kubeletClient.Public,
		"kubelet-client.key":   kubeletClient.Private,
		"service-accounts.pub": serviceAccounts.Public,
		"service-accounts.key": serviceAccounts.Private,
	} {
		if err := write(c.layout.pki(name), content); err != nil {
			return err
		}
	}
	identities := []identity{
		{path: c.layout.kubeconfig(), server: hostURL, user: "admin", groups: []string{"system:masters"}},
		{
			path: c.layout.config(controlPlaneSandbox, "controller-manager.kubeconfig"), server: apiServerURL,
			user: "system:kube-controller-manager",
		},
		{path: c.SchedulerKubeconfig(), server: apiServerURL, user: "system:kube-scheduler"},
	}
	kubelets := slices.Clone(c.options.Kubelets)
	for _, node := range c.Nodes {
		kubelets = append(kubelets, node.Name)
	}
	for _, node := range kubelets {
		identities = append(identities, identity{
			path: c.kubeletKubeconfig(node), server: apiServerURL, user: "system:node:" + node,
			groups: []string{"system:nodes"},
		})
	}
	for _, identity := range identities {
		if err := identity.writeKubeconfig(authority); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) newEtcd() *Component {
	return c.controlPlaneComponent("etcd", "etcd", nil, []string{
		"--data-dir=/var/lib/etcd",
		"--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380",
		"--unsafe-no-fsync", // the data is not meant to survive the machine
		"--log-level=warn",
	})
}

func (c *Cluster) newAPIServer() *Component {
	return c.controlPlaneComponent("kube-apiserver", c.options.KubernetesProgram("kube-apiserver"), nil, []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--secure-port=443",
		"--advertise-address=" + controlPlaneIP,
		"--service-cluster-ip-range=" + serviceRange,
		"--endpoint-reconciler-type=none",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--client-ca-file=" + c.layout.pki("ca.crt"),
		"--tls-cert-file=" + c.layout.pki("apiserver.crt"),
		"--tls-private-key-file=" + c.layout.pki("apiserver.key"),
		"--kubelet-client-certificate=" + c.layout.pki("kubelet-client.crt"),
		"--kubelet-client-key=" + c.layout.pki("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.layout.pki("service-accounts.pub"),
		"--service-account-signing-key-file=" + c.layout.pki("service-accounts.key"),
	})
}

func (c *Cluster) newControllerManager() *Component {
	const name = "kube-controller-manager"
	return c.controlPlaneComponent(name, c.options.KubernetesProgram(name), nil, []string{
		"--kubeconfig=" + c.layout.config(controlPlaneSandbox, "controller-manager.kubeconfig"),
		"--controllers=" + strings.Join(controllers, ","),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.layout.pki("service-accounts.key"),
		"--root-ca-file=" + c.layout.pki("ca.crt"),
		"--leader-elect=false",
		"--node-monitor-period=500ms",
	})
}

// ControlPlane is the namespaces that the control plane lives in. Its programs serve on 127.0.0.1
// there.
func (c *Cluster) ControlPlane() *sandbox.Sandbox { return c.controlPlane }

// SchedulerConfig is the configuration file of one more scheduler, for the pods that name it.
func (c *Cluster) SchedulerConfig(name string) []byte {
	return fmt.Appendf(nil, schedulerConfig, c.SchedulerKubeconfig(), name)
}

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %s
leaderElection:
  leaderElect: false
profiles:
- schedulerName: %s
`

// Kubeconfig is the administrator's file, for programs of this machine.
func (c *Cluster) Kubeconfig() string { return c.layout.kubeconfig() }

// SchedulerURL is where the machine reaches the scheduler's read API, if it serves one.
func (c *Cluster) SchedulerURL() string { return c.schedulerURL }

// SchedulerKubeconfig is the file with which schedulers reach the API server.
func (c *Cluster) SchedulerKubeconfig() string {
	return c.layout.config(controlPlaneSandbox, "scheduler.kubeconfig")
}

// NewScheduler returns one more scheduler, which is not started yet and serves on a port of its
// own. The first scheduler has schedulerPort. It gets the arguments that the first one gets, then
// the program's own.
func (c *Cluster) NewScheduler(name string, port int, program Program) *Component {
	path, more := program.Path, c.schedulerSeals()
	if path == "" {
		path, more = "kube-scheduler", c.options.emulation()
	}
	kubeconfig := c.SchedulerKubeconfig()
	return c.controlPlaneComponent(name, path, program.Env, slices.Concat([]string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
	}, more, program.Args))
}

func (c *Cluster) controlPlaneComponent(name, program string, env, args []string) *Component {
	return c.newComponent(func() *sandbox.Sandbox { return c.controlPlane }, controlPlaneSandbox, name, Program{
		Path: program,
		Env:  env,
		Args: append(args, c.options.ExtraArgs[name]...),
	})
}

// newComponent returns a component that has not been started. A program's path that is not absolute
// is one of the cluster's programs.
func (c *Cluster) newComponent(in func() *sandbox.Sandbox, sandboxName, name string, program Program) *Component {
	if !filepath.IsAbs(program.Path) {
		program.Path = filepath.Join(c.options.Programs, program.Path)
	}
	component := &Component{
		Name:    sandboxName + "/" + name,
		LogPath: c.layout.log(sandboxName, name),
		sandbox: in,
		command: sandbox.Command{
			Path: program.Path, Args: program.Args, Env: append(c.Environment(), program.Env...),
			Mounts: program.Mounts, HideRDMA: program.HideRDMA,
		},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.components = append(c.components, component)
	return component
}

// Environment is what every program of the cluster finds. Files that programs make for a moment go
// to the sandbox's own /var/tmp.
func (c *Cluster) Environment() []string {
	return []string{
		"PATH=" + c.path(),
		"HOME=/root",
		"TMPDIR=/var/tmp",
		"CONTAINER_RUNTIME_ENDPOINT=unix://" + containerdSocket, // for crictl
	}
}

func (c *Cluster) path() string {
	return c.options.Programs + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}
