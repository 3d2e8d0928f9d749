// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	nodeutil "k8s.io/component-helpers/node/util"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/deploy"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Where kubecri is installed, by hand and from its Debian package; its units say so.
const (
	installedProgram = "/usr/local/bin/kubecri"
	packagedProgram  = "/usr/bin/kubecri"
)

// journalPath is not in kubecri's state directory, which goes with kubecri.
const journalPath = "/var/lib/kubedevice-enrolment"

// adminKubeconfig is an administrator's, on control planes that kubeadm set up.
const adminKubeconfig = "/etc/kubernetes/admin.conf"

const enrolLong = `Put kubecri between this node's kubelet and its container runtime: install its units and its
configuration, start it, point the kubelet at it, and wait until the node is ready. With mode: nri in
its configuration, or --mode=nri where there is none, kubecri becomes an NRI plugin of the runtime:
wait until it is registered, and leave the kubelet alone. Before that, say what the node is like, and
refuse where it cannot be done safely. If the node is not ready within a minute, or a pod is lost,
everything goes back to what it was, and the reason is printed.

It may be repeated, and goes on with what was begun. Run it as root on the node.`

const leaveLong = `Take kubecri out again, as enrol put it in: point the kubelet at the runtime, wait until the node is
ready, unless kubecri is an NRI plugin, stop kubecri, and take away what it published and what was
installed. It refuses while device pods run.

It may be repeated, and goes on with what was begun, also by an enrol that failed. Run it as root on
the node.`

const exitStatuses = `

Exit status: 0 the node is as it was to be, 1 wrong arguments, 2 refused and nothing was changed, 3 a
step failed and everything is as it was before, 4 a step failed and so did the way back: run leave.`

// enrolCommand enrols this node.
func enrolCommand() *cobra.Command {
	o := newEnrolOptions()
	command := o.command("enrol", "Put kubecri between this node's kubelet and its runtime, or next to them", enrolLong,
		(*enrolment.Enrolment).Enrol)
	command.Aliases = []string{"enroll"}
	flags := command.Flags()
	flags.BoolVar(&o.schedulersReplaced, "schedulers-replaced", o.schedulersReplaced,
		"each scheduler that may lead is KubeDevice's; for where that cannot be seen")
	flags.BoolVar(&o.otherDevices, "plugins-for-other-devices", o.otherDevices,
		"the plugin files of --cridevices serve other devices than those that pods hold by the kubelet")
	flags.Var(&o.mode, "mode", "kubecri's mode, for the configuration file that enrol writes")
	flags.StringVar(&o.program, "program", o.program, "where kubecri is installed, for its unit to start")
	flags.StringVar(&o.kubecri.PluginDir, "cridevices", o.kubecri.PluginDir,
		"directory of kubecri's device plugins (*.so), for the configuration file that enrol writes")
	flags.BoolVar(&o.units, "units", o.units,
		"install and start units of systemd; false with mode nri means that another program starts kubecri, as "+
			"kubecri agent does")
	flags.StringVar(&o.group, "group", o.group, "the node's label "+enrolment.GroupLabel+"; empty for none")
	flags.StringSliceVar(&o.owned, "owned-directory", o.owned,
		"directory that is there for kubecri alone, such as that of its program, which leave removes; may be repeated")
	return command
}

// leaveCommand undoes what enrolCommand did.
func leaveCommand() *cobra.Command {
	o, drain := newEnrolOptions(), false
	o.units, o.leave = false, true // how it was started is in the journal
	command := o.command("leave", "Take kubecri out again, as enrol put it in", leaveLong,
		func(e *enrolment.Enrolment, ctx context.Context, dryRun bool) *enrolment.Report {
			return e.Leave(ctx, dryRun, drain)
		})
	flags := command.Flags()
	flags.BoolVar(&drain, "drain", drain, "evict the device pods, through the Eviction API")
	flags.IntVar(&o.process, "process", o.process,
		"with mode nri, the process of kubecri, which is ended before what it published is taken away")
	return command
}

// enrolOptions are what the flags of enrol and leave set. They describe the kubecri to enrol.
type enrolOptions struct {
	kubecri            *Options
	mode               Mode // that the command line names
	program            string
	systemdDir         string
	kubeletUnit        string
	clusterKubeconfig  string
	schedulersReplaced bool
	otherDevices       bool
	group              string
	owned              []string
	units              bool // of systemd, which start kubecri
	leave              bool
	process            int
	checker            pluginload.Checker // has the plugin files that it has loaded
}

var _ enrolment.Kubecri = (*enrolOptions)(nil)

func newEnrolOptions() *enrolOptions {
	o := &enrolOptions{
		kubecri: NewOptions(), program: installedProgram, systemdDir: "/etc/systemd/system",
		kubeletUnit: "kubelet.service", units: true,
	}
	if itself, err := os.Executable(); err == nil {
		o.program = unitProgram(itself)
	}
	o.kubecri.configFile = installedConfiguration
	return o
}

// unitProgram returns the program that kubecri's unit starts, from the one that runs: what was
// installed from a package has that package's unit.
func unitProgram(running string) string {
	if running == packagedProgram {
		return packagedProgram
	}
	return installedProgram
}

// command returns a command that prints the report of run.
func (o *enrolOptions) command(name, short, long string,
	run func(*enrolment.Enrolment, context.Context, bool) *enrolment.Report) *cobra.Command {
	format, dryRun := "text", false
	command := &cobra.Command{
		Use: name, Short: short, Long: long + exitStatuses, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if format != "text" && format != "json" {
				return fmt.Errorf("--output %q: want text or json", format)
			}
			options, err := o.enrolment(command.ErrOrStderr())
			if err != nil {
				return err
			}
			ctx, stop := untilSignalled(command.Context(), os.Stderr)
			defer stop()
			report := run(enrolment.New(options), ctx, dryRun)
			write := report.WriteText
			if format == "json" {
				write = report.WriteJSON
			}
			if err := write(command.OutOrStdout()); err != nil {
				return err
			}
			if code := report.ExitCode(); code != 0 {
				return exitStatus{code: code}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.BoolVar(&dryRun, "dry-run", dryRun, "only say what is to be done")
	flags.StringVarP(&format, "output", "o", format, "text or json")
	flags.StringVar(&o.kubecri.configFile, configurationFlag, o.kubecri.configFile,
		"kubecri's configuration file; without one, enrol writes it")
	flags.StringVar(&o.clusterKubeconfig, "cluster-kubeconfig", o.clusterKubeconfig,
		"kubeconfig of an administrator, to see which schedulers, policies and waiting pods there are (default "+
			adminKubeconfig+" where that exists)")
	flags.StringVar(&o.kubeletUnit, "kubelet-unit", o.kubeletUnit, "the kubelet's unit of systemd")
	flags.StringVar(&o.systemdDir, "systemd-dir", o.systemdDir, "directory in which kubecri's units are installed")
	return command
}

// exitStatus is the end of a command that has said everything already.
type exitStatus struct{ code int }

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// enrolment returns the options of the enrolment of this machine.
func (o *enrolOptions) enrolment(progress io.Writer) (enrolment.Options, error) {
	upstream, err := o.configured()
	if err != nil {
		return enrolment.Options{}, err
	}
	if upstream == "" && o.mode != "" {
		o.kubecri.Mode = o.mode
	}
	if o.mode != "" && o.mode != o.kubecri.Mode {
		return enrolment.Options{}, fmt.Errorf("--mode=%s: %s says mode: %s; change it there", o.mode,
			o.kubecri.configFile, o.kubecri.Mode)
	}
	cluster, err := o.cluster()
	if err != nil {
		return enrolment.Options{}, err
	}
	policies, err := deploy.PolicyNames()
	if err != nil {
		return enrolment.Options{}, err
	}
	started, err := o.started()
	if err != nil {
		return enrolment.Options{}, err
	}
	return enrolment.Options{
		Group: o.group, Owned: o.owned, NRI: started,
		Host: enrolment.Host{Machine: machine{}}, Mode: enrolment.Mode(o.kubecri.Mode),
		Endpoint: o.kubecri.ServeEndpoint, Upstream: upstream, NRISocket: o.kubecri.NRISocket,
		MetricsAddress: o.kubecri.MetricsAddress,
		Program:        o.program, PluginDir: o.kubecri.PluginDir, StateDir: o.kubecri.StateDir,
		ConfigFile: o.kubecri.configFile, Journal: journalPath, SystemdDir: o.systemdDir, Version: versionLine(),
		KubeletUnit: o.kubeletUnit, CheckpointPath: kubeletstate.Path,
		Kubecri: o, APIServers: apiServers{}, Runtimes: runtimes{},
		Cluster: cluster, SchedulersReplaced: o.schedulersReplaced, Policies: policies,
		OtherDevices: o.otherDevices, Progress: progress,
	}, nil
}

// configured reads kubecri's configuration file, if there is one, and returns the runtime's
// endpoint as of it.
func (o *enrolOptions) configured() (upstream string, err error) {
	if _, err := os.Stat(o.kubecri.configFile); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	flags := pflag.NewFlagSet("kubecri", pflag.ContinueOnError)
	o.kubecri.addFlags(flags)
	if err := configure(flags, o.kubecri.configFile); err != nil {
		return "", err
	}
	return o.kubecri.UpstreamEndpoint, nil
}

// started returns what the configuration file says of a kubecri that another user starts as an NRI
// plugin, or nil if a unit of systemd does.
func (o *enrolOptions) started() (*enrolment.NRI, error) {
	if o.kubecri.Mode != ModeNRI || o.units {
		return nil, nil
	}
	if o.leave {
		return &enrolment.NRI{}, nil
	}
	if o.kubecri.Kubeconfig == "" {
		return nil, fmt.Errorf("%s has no kubeconfig: name the kubelet's, such as /etc/kubernetes/kubelet.conf",
			o.kubecri.configFile)
	}
	node, err := nodeutil.GetHostname(o.kubecri.hostnameOverride)
	if err != nil {
		return nil, err
	}
	return &enrolment.NRI{
		Node: node, Kubeconfig: o.kubecri.Kubeconfig, Runtime: o.kubecri.UpstreamEndpoint, Socket: o.kubecri.NRISocket,
	}, nil
}

// cluster returns an administrator's client, or nil if there is none.
func (o *enrolOptions) cluster() (kubernetes.Interface, error) {
	path := o.clusterKubeconfig
	if path == "" {
		if path = adminKubeconfig; !exists(path) {
			return nil, nil
		}
	}
	client, err := newClient(path)
	if err != nil {
		return nil, fmt.Errorf("--cluster-kubeconfig: %w", err)
	}
	return client, nil
}

// Configuration returns the configuration file for a node whose kubelet was started like this.
func (o *enrolOptions) Configuration(kubelet enrolment.Kubelet) ([]byte, error) {
	if kubelet.RootDir != o.kubecri.KubeletDir {
		return nil, fmt.Errorf("the kubelet has --root-dir=%s, for which the configuration file has no word: install "+
			"kubecri.service with this flag, and %s", kubelet.RootDir, o.kubecri.configFile)
	}
	c := Configuration{
		APIVersion: ConfigurationVersion, Kind: ConfigurationKind,
		ContainerRuntimeEndpoint: &o.kubecri.ServeEndpoint, CRIUpstream: &kubelet.Endpoint,
		CRIDevices: &o.kubecri.PluginDir, StateDir: &o.kubecri.StateDir, Kubeconfig: &kubelet.Kubeconfig,
	}
	if o.kubecri.Mode == ModeNRI {
		mode, socket := string(ModeNRI), o.kubecri.NRISocket
		c.Mode, c.NRISocket, c.ContainerRuntimeEndpoint = &mode, &socket, nil
	}
	if kubelet.HostnameOverride != "" {
		c.HostnameOverride = &kubelet.HostnameOverride
	}
	content, err := yaml.Marshal(c)
	if err != nil {
		return nil, err
	}
	return append([]byte("# Written by kubecri enrol; kubecri leave removes it.\n"), content...), nil
}

// Unit returns one of kubecri's units for where it is installed.
func (o *enrolOptions) Unit(name string) ([]byte, error) {
	content, err := deploy.Unit(name)
	if err != nil {
		return nil, err
	}
	socket, err := criproxy.SocketPath(o.kubecri.ServeEndpoint)
	if err != nil {
		return nil, err
	}
	usual, err := criproxy.SocketPath(NewOptions().ServeEndpoint)
	if err != nil {
		return nil, err
	}
	text := string(content)
	if o.kubecri.Mode == ModeNRI {
		text = withoutSocket(text)
	}
	return []byte(strings.NewReplacer("ExecStart="+installedProgram, "ExecStart="+o.program,
		"="+installedConfiguration, "="+o.kubecri.configFile, "ListenStream="+usual, "ListenStream="+socket,
	).Replace(text)), nil
}

// withoutSocket returns the unit of kubecri without the socket that it wants, which is for the
// kubelet.
func withoutSocket(unit string) string {
	const wanted = "# Optional: without it kubecri makes the socket itself.\nWants=kubecri.socket\n"
	return strings.Replace(unit, wanted, "", 1)
}

// Granted returns the UIDs of the pods in the checkpoint. Of those that were adopted only the ones
// are among them whose devices the kubelet has forgotten: all others it serves without kubecri as
// before.
func (o *enrolOptions) Granted(kubelet kubeletstate.State) ([]string, error) {
	list, err := grants.Read(o.kubecri.grantsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var uids []string
	for _, allocation := range list {
		if !allocation.Adopted || isForgotten(&allocation, kubelet) {
			uids = append(uids, allocation.PodUID)
		}
	}
	return uids, err
}

// isForgotten reports whether the kubelet does not know of all devices that it gave to an adopted
// pod.
func isForgotten(adopted *grants.Allocation, kubelet kubeletstate.State) bool {
	for _, containers := range []map[string]types.ContainerInfo{
		adopted.PodInfo.InitContainers, adopted.PodInfo.RunningContainers,
	} {
		for container, info := range containers {
			for name := range maps.Values(info.AllocateFrom) {
				if !kubelet.Allocated(adopted.PodUID, container, name) {
					return true
				}
			}
		}
	}
	return false
}

// Withdraw is kubecri cleanup. A kubecri without a state directory has never run.
func (o *enrolOptions) Withdraw(ctx context.Context, client kubernetes.Interface, node string) error {
	if !exists(o.kubecri.StateDir) {
		return nil
	}
	options := *o.kubecri
	options.NodeName = node
	return cleanUp(ctx, io.Discard, client, &options)
}

// machine is this machine.
type machine struct{}

var _ enrolment.Machine = machine{}

// Run runs a program of this machine.
func (machine) Run(ctx context.Context, program string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, args...)
	output, err := command.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		said := strings.ReplaceAll(strings.TrimSpace(string(failed.Stderr)), "\n", "; ")
		err = fmt.Errorf("%w: %s", err, said)
	}
	return string(output), err
}
