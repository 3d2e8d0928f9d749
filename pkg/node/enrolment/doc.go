// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package enrolment puts kubecri between a node's kubelet and its container runtime, or next to
// them as an NRI plugin of the runtime, and takes it out again. As a plugin it leaves the kubelet
// alone.
//
// It has four layers:
//
//   - facts: what the node is like, read only, each with its risk and what to do about it;
//   - plan: the files to write, from the facts;
//   - journal: the plan and every file as it was, in a state file, before anything is changed;
//   - steps: each can be done and undone, from the journal alone.
//
// A step can be repeated: after a crash at any moment, Enrol goes on, and Leave goes back. What
// undoes an enrolment that failed is what Leave does. A file goes back to what it was, byte for
// byte, with its owner and mode; if another user has changed it meanwhile, only the endpoint in it
// does.
//
// What the four do differs by how kubecri is installed: see installation.
//
// The machine is seen through [Host], so tests have one of their own.
package enrolment

import (
	"cmp"
	"context"
	"io"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
)

const (
	// kubeletTimeout is how long the kubelet may take to report that the node is ready.
	kubeletTimeout = time.Minute
	// runtimeTimeout is how long kubecri may take to pass on a call.
	runtimeTimeout = 30 * time.Second
	// containersTimeout is how long an enrolment waits for a moment in which all containers run
	// that hold devices of the kubelet.
	containersTimeout = 5 * time.Minute
	// evictionTimeout is how long Leave waits for the pods that it has evicted.
	evictionTimeout = 10 * time.Minute
	// callTimeout is how long one look at a condition may take.
	callTimeout = 10 * time.Second
	// usualWait is how long most waits are at most.
	usualWait = 5 * time.Second
	// poll is how often a condition is looked at that nothing announces.
	poll = 500 * time.Millisecond
)

// Label is on the nodes that are enrolled, with the value "true". It selects where DaemonSets of
// device plugins run: those that register with the kubelet elsewhere, those that register with
// kubecri here.
const Label = "kubedevice.io/enrolled"

// GroupLabel is on the nodes that a DaemonSet enrolled, with the name of its group: the DaemonSet
// stays on them until they have left.
const GroupLabel = "kubedevice.io/node-group"

// Mode is how kubecri hears of containers.
type Mode string

// The modes, as kubecri's configuration names them.
const (
	ModeCRI Mode = "cri" // the kubelet calls it
	ModeNRI Mode = "nri" // the container runtime calls it
)

// The names of kubecri's units of systemd. The socket is for the kubelet.
const (
	socketUnit  = "kubecri.socket"
	serviceUnit = "kubecri.service"
)

// Options configure an Enrolment. All fields are required, unless they say otherwise.
type Options struct {
	Host Host
	// Mode is the one that kubecri is configured for. Empty means ModeCRI.
	Mode Mode
	// Endpoint is kubecri's, as the kubelet is to call it. It does not in ModeNRI.
	Endpoint string
	// Upstream is the endpoint that kubecri is configured to pass calls on to; empty if there is no
	// configuration yet.
	Upstream string
	// Program, PluginDir, StateDir and ConfigFile are paths of kubecri: the program that its unit
	// starts, its device plugins, its state, and its configuration file.
	Program, PluginDir, StateDir, ConfigFile string
	// Version is what this program prints with --version; Program must print the same.
	Version string
	// Journal is the path of the journal, in a directory that every machine has.
	Journal string
	// SystemdDir is where kubecri's units are installed.
	SystemdDir string
	// KubeletUnit is the kubelet's unit.
	KubeletUnit string
	// CheckpointPath is the kubelet's checkpoint of devices.
	CheckpointPath string
	// Group is the value of GroupLabel; empty means that the node does not get it.
	Group string
	// Owned are directories that are there for kubecri alone, such as that of its program, and go
	// when the node leaves.
	Owned []string
	// NRI, if set, has the caller of Enrol start kubecri, which is in ModeNRI. Without, its
	// unit of systemd does.
	NRI *NRI
	// Kubecri is the program that is enrolled.
	Kubecri Kubecri
	// APIServers are the API servers that kubeconfigs name.
	APIServers APIServers
	// Runtimes are the container runtimes of the machine.
	Runtimes Runtimes
	// Cluster may read the pods of kube-system, leases and admission policies. Without it, what
	// only they show is unknown.
	Cluster kubernetes.Interface
	// SchedulersReplaced says that each scheduler that may lead is KubeDevice's, where that is
	// unknown.
	SchedulersReplaced bool
	// OtherDevices says that the files in PluginDir serve other devices than those that pods hold
	// by the kubelet.
	OtherDevices bool
	// Policies are the names of the admission policies.
	Policies []string
	// NRISocket is where kubecri is configured to register; empty if it is not to.
	NRISocket string
	// MetricsAddress is where kubecri is configured to serve health.
	MetricsAddress string
	// Progress receives a line for each completed step and for each wait.
	Progress io.Writer
}

// Kubecri is the program that is enrolled, as its flags and its configuration file describe it.
type Kubecri interface {
	// Unit returns one of its units, by name.
	Unit(name string) ([]byte, error)
	// Configuration returns the configuration file for a node that has none.
	Configuration(kubelet Kubelet) ([]byte, error)
	// CheckPlugin returns why a plugin file does not load, or nil.
	CheckPlugin(ctx context.Context, file string) error
	// Registered returns why kubecri, which runs, is not registered with the runtime, or nil. It is
	// called in ModeNRI alone.
	Registered(ctx context.Context) error
	// Granted returns the UIDs of the pods that hold devices which this kubelet does not know of:
	// kubecri has granted them, or the kubelet has forgotten that it allocated them.
	Granted(kubelet kubeletstate.State) ([]string, error)
	// Stop ends kubecri, and returns when it has ended. It is called where Options.NRI is set.
	Stop(ctx context.Context) error
	// Withdraw removes what kubecri published of the node.
	Withdraw(ctx context.Context, client kubernetes.Interface, node string) error
}

// APIServers are the API servers that kubeconfigs name.
type APIServers interface {
	// Connect returns a client with the credentials in a kubeconfig, which must be the kubelet's.
	Connect(kubeconfig string) (kubernetes.Interface, error)
	// Time returns the time of the API server.
	Time(ctx context.Context, kubeconfig string) (time.Time, error)
}

// Runtimes are the container runtimes of the machine, by their CRI endpoints and NRI sockets.
type Runtimes interface {
	// Version returns name and version of the runtime that answers at an endpoint.
	Version(ctx context.Context, endpoint string) (string, error)
	// CheckCDI returns why the runtime at an endpoint ignores CDI devices, or nil.
	CheckCDI(ctx context.Context, endpoint string) error
	// CheckNRI returns name and version of the runtime that registers plugins at a socket, or why
	// it would not register a kubecri that handles its requests. It does not connect to the socket
	// where the runtime, whose CRI is at the endpoint, cannot send its list of containers.
	CheckNRI(ctx context.Context, endpoint, socket string) (string, error)
	// Validator returns the settings of the default validator in the configuration of the runtime
	// at an endpoint.
	Validator(ctx context.Context, endpoint string) (nri.Settings, error)
}

// NRI is what an enrolment must know of a node whose kubelet it does not look at.
type NRI struct {
	// Node is the node's name, Kubeconfig the kubelet's.
	Node, Kubeconfig string
	// Runtime is the runtime's CRI endpoint, Socket its NRI socket.
	Runtime, Socket string
}

// Enrolment is an enrolment of this node, in the past or in the future. Its methods must not run at
// the same time.
type Enrolment struct{ options Options }

// New returns the enrolment of this node.
func New(options Options) *Enrolment {
	options.Mode = cmp.Or(options.Mode, ModeCRI)
	if options.NRI != nil {
		options.Mode = ModeNRI
	}
	return &Enrolment{options: options}
}
