// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/devicehealth"
	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/podresources"
	"github.com/kubedevice/kubedevice/pkg/node/policing"
	"github.com/kubedevice/kubedevice/pkg/node/sharelibrary"
	"github.com/kubedevice/kubedevice/pkg/node/telemetry"
	"github.com/kubedevice/kubedevice/pkg/node/usage"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// Options configure kubecri. Flags override kubecri's configuration file, that the kubelet's, and
// that the defaults.
type Options struct {
	// Mode says how kubecri hears of containers.
	Mode Mode
	// ServeEndpoint is the Unix socket that the kubelet is pointed at; it counts in ModeCRI alone.
	ServeEndpoint string
	// UpstreamEndpoint is the Unix socket of the runtime.
	UpstreamEndpoint string
	// PluginDir holds the device plugins, *.so.
	PluginDir string
	// AllowWritablePlugins loads plugin files that users other than root may write or replace, too.
	AllowWritablePlugins bool
	// StateDir has the files that outlive a restart.
	StateDir string
	// KubeletDir is the kubelet's root directory, in which its PodResources socket is.
	KubeletDir string
	// NRISocket is where the runtime serves NRI; kubecri does not register there when it is empty,
	// which it must not be in ModeNRI.
	NRISocket string
	// MetricsAddress serves /metrics, /healthz and /readyz; nothing is served when it is empty.
	MetricsAddress string
	// MetricsCertificate and MetricsKey are the PEM files of the certificate and its key with which
	// an address is served that others reach. Both are empty for one that is made at the start.
	MetricsCertificate, MetricsKey string
	// Kubeconfig is the kubelet's. Empty means that there is no API server, as for the kubelet.
	Kubeconfig string
	// SealCertificates is a PEM file of certificates, and SealTrustBundle the name of a
	// ClusterTrustBundle, with the keys by which the scheduler's seals are verified; both may be
	// empty.
	SealCertificates, SealTrustBundle string
	// SealMode says what follows when a pod has no valid seal. Empty means seal.Enforce where keys
	// are named, and otherwise seal.Off.
	SealMode seal.Mode
	// DeviceFirewall keeps containers from devices that they were not allocated; see package
	// firewall.
	DeviceFirewall bool
	// DeviceFirewallAllow are the pods that it lets through, as namespace/serviceaccount.
	DeviceFirewallAllow []string
	// DeviceFirewallVendors are vendors that it does not know by itself.
	DeviceFirewallVendors []firewall.Vendor
	// VirtualDevices are how often each device of an extended resource counts in the node's status.
	VirtualDevices map[string]int64
	// OnDeviceFailure is what happens to pods whose device has failed and been unhealthy for
	// DeviceFailureGracePeriod, where pod and namespace say nothing.
	OnDeviceFailure          devicehealth.Policy
	DeviceFailureGracePeriod time.Duration
	// DeviceUsageInterval is the time between two readings of how much of the devices containers
	// use; 0 for none.
	DeviceUsageInterval time.Duration
	// OnShareExceeded is what happens to containers that use more than their share of a device's
	// memory for longer than ShareExceededGracePeriod, where their pod says nothing.
	OnShareExceeded          policing.Policy
	ShareExceededGracePeriod time.Duration
	// ContextMemory is how much memory of each process does not count against shares.
	ContextMemory usage.ContextMemory
	// ShareLibrary is the library that limits containers with shares, if it has a path.
	ShareLibrary sharelibrary.Settings
	// NodeName is the name of this node: --hostname-override or the host's name.
	NodeName string

	hostnameOverride string
	configFile       string
	kubeletConfig    string
	kubeletConfigDir string
	ignoreUnknown    bool
	allowlist        firewall.Allowlist

	// runDir is a directory that lives no longer than a boot, for ModeNRI. In ModeCRI it is that of
	// the socket, which on any but odd machines is below /run.
	runDir string

	// cdiDir, if set, replaces the directory of CDI specifications.
	cdiDir string

	// installedConfig is the configuration file without any flag.
	installedConfig string

	// loadPlugins, if set, replaces PluginDir.
	loadPlugins plugins.Load
}

// installedConfiguration is where kubecri's configuration is installed, by hand and from its Debian
// package; its units say so.
const installedConfiguration = "/etc/kubedevice/kubecri.yaml"

// Mode is how kubecri hears of containers.
type Mode string

// The modes.
const (
	ModeCRI Mode = "cri" // as a proxy between the kubelet and the runtime
	ModeNRI Mode = "nri" // as an NRI plugin of the runtime
)

// String implements pflag.Value.
func (m *Mode) String() string { return string(*m) }

// Type implements pflag.Value.
func (m *Mode) Type() string { return "cri|nri" }

// Set implements pflag.Value.
func (m *Mode) Set(text string) error {
	switch mode := Mode(text); mode {
	case ModeCRI, ModeNRI:
		*m = mode
		return nil
	}
	return fmt.Errorf("%q is neither %s nor %s", text, ModeCRI, ModeNRI)
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Mode:             ModeCRI,
		ServeEndpoint:    "unix:///run/kubedevice/kubecri.sock",
		UpstreamEndpoint: "unix:///run/containerd/containerd.sock",
		PluginDir:        "/usr/local/KubeExt/devices",
		StateDir:         "/var/lib/kubedevice",
		KubeletDir:       "/var/lib/kubelet",
		NRISocket:        nri.DefaultSocket,
		MetricsAddress:   "127.0.0.1:10261",
		runDir:           "/run/kubedevice",
		installedConfig:  installedConfiguration,
		DeviceFirewall:   true,
		// Whoever may create pods there may do anything in the cluster.
		DeviceFirewallAllow: []string{metav1.NamespaceSystem + "/*"},

		OnDeviceFailure: devicehealth.Ignore, DeviceFailureGracePeriod: time.Minute,
		DeviceUsageInterval: usage.DefaultInterval,
		OnShareExceeded:     policing.Ignore, ShareExceededGracePeriod: policing.DefaultGracePeriod,
		ContextMemory: usage.DefaultContextMemory(),
	}
}

// ignoreUnknownFlag is searched before flags are parsed.
const ignoreUnknownFlag = "ignore-unknown-kubelet-flags"

// firewallFlag is the flag of the device firewall.
const firewallFlag = "device-firewall"

// deprecatedFlags are accepted and have no effect. The value says what to do.
var deprecatedFlags = map[string]string{
	"isolate":              "it has no effect: use --" + firewallFlag,
	"device-plugins-dir":   inStateDir("device-plugins"),
	"plugins-registry-dir": inStateDir("plugins_registry"),
	"pod-resources-dir":    inStateDir("pod-resources"),
	"device-series":        "it has no effect: the number of devices with series of their own is fixed",
}

func inStateDir(name string) string {
	return "it has no effect: the directory is " + name + " in --state-dir"
}

// addDeprecated adds the flags that have no effect.
func addDeprecated(flags *pflag.FlagSet) {
	for name, advice := range deprecatedFlags {
		flags.String(name, "", "")
		// Fails only for a flag that is not there.
		_ = flags.MarkDeprecated(name, advice)
	}
	flags.Lookup("isolate").NoOptDefVal = "true" // it was a switch
}

// graceFlag is the flag of DeviceFailureGracePeriod.
const graceFlag = "device-failure-grace-period"

// usageFlag is the flag of DeviceUsageInterval, and minUsageInterval the shortest: the driver may
// take milliseconds for each device.
const (
	usageFlag        = "device-usage-interval"
	minUsageInterval = time.Second
)

// The flags of policing.
const (
	exceededFlag      = "on-share-exceeded"
	exceededGraceFlag = "share-exceeded-grace-period"
	contextFlag       = "context-memory"
	libraryFlag       = "share-library"
	locksFlag         = "share-library-locks"
)

// onOff is a flag.Value, on or off.
type onOff bool

func (o *onOff) String() string {
	if *o {
		return "on"
	}
	return "off"
}

// Type implements pflag.Value. It is that of a boolean flag, so that --help shows this one like the
// others: without a value of its own.
func (o *onOff) Type() string { return "bool" }

// Set implements pflag.Value. It takes the words of a boolean flag, too.
func (o *onOff) Set(text string) error {
	switch text {
	case "on", "true":
		*o = true
	case "off", "false":
		*o = false
	default:
		return fmt.Errorf("%q is neither on nor off", text)
	}
	return nil
}

// addFlags adds the flags that have an effect.
func (o *Options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.configFile, configurationFlag, o.configFile,
		"kubecri's own configuration file; flags win over it, and it over the kubelet's")
	flags.Var(&o.Mode, "mode",
		"how kubecri hears of containers: cri serves the kubelet in the runtime's place, nri is an NRI plugin of the "+
			"runtime, and leaves the kubelet's endpoint alone")
	flags.StringVar(&o.ServeEndpoint, "container-runtime-endpoint", o.ServeEndpoint,
		"Unix socket to serve, and to give to the kubelet under the same flag; systemd may hand it over; "+
			"not used with --mode=nri")
	flags.StringVar(&o.UpstreamEndpoint, "cri-upstream", o.UpstreamEndpoint, "Unix socket of the container runtime")
	flags.StringVar(&o.PluginDir, "cridevices", o.PluginDir, "directory of the device plugins (*.so)")
	flags.BoolVar(&o.AllowWritablePlugins, pluginload.AllowWritableFlag, o.AllowWritablePlugins,
		"load plugin files that users other than root may write or replace")
	flags.StringVar(&o.SealCertificates, "seal-certificates", o.SealCertificates,
		"PEM file of the certificates by which the scheduler's seals are verified; it is read again when it changes")
	flags.StringVar(&o.SealTrustBundle, "seal-trust-bundle", o.SealTrustBundle,
		"name of a ClusterTrustBundle with such certificates, which is read with the kubelet's identity and cached in "+
			"--state-dir; Kubernetes has them from 1.37 on")
	flags.Var(&o.SealMode, "seal-mode",
		"what to do with containers that get devices, of pods without a valid seal: off does not look, warn creates "+
			"them with an event, enforce refuses them (default enforce if certificates or a trust bundle are named, "+
			"else off)")
	flags.Var((*onOff)(&o.DeviceFirewall), firewallFlag,
		"keep containers from devices that they were not allocated, also when their image, pod or resource claims "+
			"request them of the container runtime: =on or =off")
	flags.Lookup(firewallFlag).NoOptDefVal = "true" // pflag does not print this one
	flags.StringSliceVar(&o.DeviceFirewallAllow, firewallFlag+"-allow", o.DeviceFirewallAllow,
		"pods that the device firewall lets through, such as exporters and drivers, as namespace/serviceaccount or "+
			"namespace/*")
	flags.Var((*vendorList)(&o.DeviceFirewallVendors), firewallFlag+"-vendors",
		"vendors that the device firewall does not know by itself; on the command line, a list in JSON")
	flags.StringToInt64Var(&o.VirtualDevices, virtualFlag, o.VirtualDevices,
		"how often each device of an extended resource counts in the node's status, such as nvidia.com/gpu=10: as "+
			"many pods can count the device and share it. Without, a device counts once")
	addDeprecated(flags)
	flags.Var(&o.OnDeviceFailure, "on-device-failure",
		"what happens to a pod when a device that it holds becomes unhealthy: Ignore writes an event, Evict evicts it "+
			"after the grace period, Replace gives its container another one; where the annotations "+
			"KubeDevice/OnDeviceFailure of pod and namespace say nothing")
	flags.DurationVar(&o.DeviceFailureGracePeriod, graceFlag, o.DeviceFailureGracePeriod,
		"how long the device may be unhealthy before anything happens to the pod; where the annotations "+
			"KubeDevice/DeviceFailureGracePeriod of pod and namespace say nothing")
	flags.DurationVar(&o.DeviceUsageInterval, usageFlag, o.DeviceUsageInterval,
		"how often to read how much of the devices containers use, for metrics and kubectl device; 0 reads nothing")
	flags.Var(&o.OnShareExceeded, exceededFlag,
		"what happens to a container that uses more than its share of a device's memory: Ignore writes an event, End "+
			"ends it after the grace period, Evict evicts its pod; where the annotation KubeDevice/OnShareExceeded of "+
			"the pod says nothing")
	flags.DurationVar(&o.ShareExceededGracePeriod, exceededGraceFlag, o.ShareExceededGracePeriod,
		"how long a container may use more than its share before anything happens")
	flags.Var(&o.ContextMemory, contextFlag,
		"how much memory the context of a process takes, which does not count against its container's share, by a "+
			"part of the name of the device's model; * is for all others")
	flags.StringVar(&o.ShareLibrary.Path, libraryFlag, o.ShareLibrary.Path,
		"library, such as HAMi-core's libvgpu.so, that containers with shares of NVIDIA's GPUs get, with the "+
			"variables that have their limits; empty for none")
	flags.StringVar(&o.ShareLibrary.Locks, locksFlag, o.ShareLibrary.Locks,
		"directory that containers with the library of --"+libraryFlag+" share and may write to, where it has its "+
			"locks; empty for none")
	flags.StringVar(&o.StateDir, "state-dir", o.StateDir,
		"directory for what must outlive a restart: which pod holds which device; in it are the directories to mount "+
			"into device plugins in place of the kubelet's (device-plugins, plugins_registry), and into exporters and "+
			"other agents (pod-resources)")
	flags.StringVar(&o.KubeletDir, "root-dir", o.KubeletDir,
		"the kubelet's root directory: kubecri asks the kubelet there which device plugins are its own, and which "+
			"pods there are")
	flags.StringVar(&o.NRISocket, "nri-socket", o.NRISocket,
		"Unix socket of NRI, where kubecri registers so that containers can require it; empty for none, unless "+
			"--mode=nri")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress,
		"address that serves /metrics, /healthz and /readyz; empty serves none. One of this machine alone is served "+
			"with HTTP. Any other is served with HTTPS, and /metrics to those whom the API server lets get it")
	flags.StringVar(&o.MetricsCertificate, "metrics-tls-cert-file", o.MetricsCertificate,
		"PEM file of the certificate for --metrics-bind-address with HTTPS, read again when it changes; without, one "+
			"is made at each start")
	flags.StringVar(&o.MetricsKey, "metrics-tls-private-key-file", o.MetricsKey,
		"PEM file of the key of --metrics-tls-cert-file")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"the kubelet's kubeconfig; it may appear later, as it does when the kubelet bootstraps. Without it kubecri "+
			"is standalone, as the kubelet is")
	flags.StringVar(&o.hostnameOverride, "hostname-override", o.hostnameOverride,
		"name of this node, in place of the host's name")
	flags.StringVar(&o.kubeletConfig, "config", o.kubeletConfig,
		"the kubelet's configuration file, read for containerRuntimeEndpoint")
	flags.StringVar(&o.kubeletConfigDir, "config-dir", o.kubeletConfigDir,
		"directory of the kubelet's configuration drop-ins (*.conf), read for containerRuntimeEndpoint")
	flags.BoolVar(&o.ignoreUnknown, ignoreUnknownFlag, o.ignoreUnknown,
		"accept flags that neither kubecri nor the kubelet it was built against knows")
}

// complete sets what flags do not set, and validates all options. flags must be parsed.
func (o *Options) complete(flags *pflag.FlagSet) error {
	if err := configure(flags, o.configFile); err != nil {
		return err
	}
	if !flags.Changed("container-runtime-endpoint") {
		endpoint, err := endpointFromKubeletConfig(o.kubeletConfig, o.kubeletConfigDir)
		if err != nil {
			return err
		}
		if endpoint != "" {
			o.ServeEndpoint = endpoint
		}
	}
	var err error
	if o.NodeName, err = nodeutil.GetHostname(o.hostnameOverride); err != nil {
		return fmt.Errorf("name of this node: %w; set --hostname-override", err)
	}
	return o.validate()
}

func (o *Options) validate() error {
	if err := o.validateEndpoints(); err != nil {
		return err
	}
	if err := o.validateMetrics(); err != nil {
		return err
	}
	var err error
	if o.allowlist, err = firewall.ParseAllowlist(o.DeviceFirewallAllow); err != nil {
		return fmt.Errorf("--%s-allow: %w", firewallFlag, err)
	}
	if err := checkVirtual(o.VirtualDevices); err != nil {
		return err
	}
	mode, err := o.sealMode()
	if err != nil {
		return fmt.Errorf("--seal-mode: %w; --seal-certificates and --seal-trust-bundle name keys", err)
	}
	if mode != seal.Off && o.SealCertificates == "" && o.Kubeconfig == "" {
		return fmt.Errorf("--seal-trust-bundle: %q is read from the API server, so it needs --kubeconfig",
			o.SealTrustBundle)
	}
	if o.DeviceFailureGracePeriod < 0 {
		return fmt.Errorf("--%s is %v; want 0s or more", graceFlag, o.DeviceFailureGracePeriod)
	}
	if o.DeviceUsageInterval != 0 && o.DeviceUsageInterval < minUsageInterval {
		return fmt.Errorf("--%s is %v; want 0s for no readings, or %v or more", usageFlag, o.DeviceUsageInterval,
			minUsageInterval)
	}
	if err := o.validateShares(); err != nil {
		return err
	}
	if o.StateDir == "" {
		return errors.New("--state-dir is empty: it must name a directory that outlives a reboot")
	}
	if path := o.podResourcesPath(); path == o.kubeletPodResourcesPath() {
		return fmt.Errorf(
			"--state-dir is the kubelet's own directory: kubecri would replace %s, which it calls; choose another "+
				"directory", path)
	}
	return nil
}

// validateShares validates what happens to containers that use more than their share.
func (o *Options) validateShares() error {
	if o.ShareExceededGracePeriod < 0 {
		return fmt.Errorf("--%s is %v; want 0s or more", exceededGraceFlag, o.ShareExceededGracePeriod)
	}
	if o.OnShareExceeded != policing.Ignore && o.DeviceUsageInterval == 0 {
		return fmt.Errorf("--%s is %s, and --%s is 0s: without readings no container is known to use more than its "+
			"share; set an interval such as %v", exceededFlag, o.OnShareExceeded, usageFlag, usage.DefaultInterval)
	}
	if o.ShareLibrary.Path == "" {
		return nil
	}
	o.ShareLibrary.AllowWritable = o.AllowWritablePlugins
	if err := o.ShareLibrary.Check(); err != nil {
		return fmt.Errorf("--%s: %w", libraryFlag, err)
	}
	return nil
}

// validateEndpoints validates what the mode needs.
func (o *Options) validateEndpoints() error {
	upstream, err := criproxy.SocketPath(o.UpstreamEndpoint)
	if err != nil {
		return fmt.Errorf("--cri-upstream: %w", err)
	}
	if o.Mode == ModeNRI {
		if o.NRISocket == "" {
			return errors.New("--nri-socket is empty: --mode=nri needs it, such as " + nri.DefaultSocket)
		}
		return nil
	}
	serve, err := criproxy.SocketPath(o.ServeEndpoint)
	if err != nil {
		return fmt.Errorf("--container-runtime-endpoint: %w", err)
	}
	if serve == upstream {
		return fmt.Errorf("--container-runtime-endpoint and --cri-upstream are both %s: kubecri would call itself; "+
			"point kubelet and kubecri at a socket of kubecri's own and --cri-upstream at the runtime's", serve)
	}
	return nil
}

// sealMode returns the mode to use.
func (o *Options) sealMode() (seal.Mode, error) {
	return o.SealMode.Resolve(o.SealCertificates != "" || o.SealTrustBundle != "")
}

// validateMetrics says what of the flags for metrics cannot be.
func (o *Options) validateMetrics() error {
	if (o.MetricsCertificate == "") != (o.MetricsKey == "") {
		return errors.New("--metrics-tls-cert-file and --metrics-tls-private-key-file need each other: give both or " +
			"none")
	}
	if o.MetricsAddress == "" {
		return nil
	}
	if _, err := net.ResolveTCPAddr("tcp", o.MetricsAddress); err != nil {
		return fmt.Errorf("--metrics-bind-address: %w; want an address such as 127.0.0.1:10261, or nothing", err)
	}
	if telemetry.IsLocal(o.MetricsAddress) {
		return nil
	}
	if o.Kubeconfig == "" {
		return fmt.Errorf("--metrics-bind-address=%s is reached from other machines, and without --kubeconfig "+
			"there is no API server that knows who may read; use one such as 127.0.0.1:10261, or nothing",
			o.MetricsAddress)
	}
	if o.MetricsCertificate != "" {
		if _, err := tls.LoadX509KeyPair(o.MetricsCertificate, o.MetricsKey); err != nil {
			return fmt.Errorf("--metrics-tls-cert-file: %w", err)
		}
	}
	return nil
}

// podResourcesPath is the PodResources socket for agents.
func (o *Options) podResourcesPath() string {
	return filepath.Join(o.StateDir, podresources.DirName, podresources.SocketName)
}

// kubeletPodResourcesPath is the kubelet's own socket of this kind.
func (o *Options) kubeletPodResourcesPath() string {
	return filepath.Join(o.KubeletDir, podresources.DirName, podresources.SocketName)
}
