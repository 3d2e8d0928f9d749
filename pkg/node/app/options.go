// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
)

// Options are what kubecri is told. Defaults give way to the kubelet's configuration file, that to kubecri's own, and that to
// flags.
type Options struct {
	// ServeEndpoint is the Unix socket that the kubelet is pointed at.
	ServeEndpoint string
	// UpstreamEndpoint is the Unix socket of the runtime.
	UpstreamEndpoint string
	// PluginFolder holds the device plugins, *.so.
	PluginFolder string
	// AllowWritablePlugins loads plugin files that users other than root may write or replace, too.
	AllowWritablePlugins bool
	// StateFolder is where kubecri remembers across restarts.
	StateFolder string
	// DevicePluginsFolder and RegistryFolder are what device plugins take for the kubelet's folders of these kinds; empty means
	// those in the state folder.
	DevicePluginsFolder, RegistryFolder string
	// PodResourcesFolder is what agents take for the kubelet's folder of its PodResources socket; empty means that in the state
	// folder.
	PodResourcesFolder string
	// KubeletFolder is the kubelet's root folder, in which its PodResources socket is.
	KubeletFolder string
	// MetricsAddress serves /metrics, /healthz and /readyz; nothing is served when it is empty.
	MetricsAddress string
	// Kubeconfig is the kubelet's. Empty means that there is no API server, as for the kubelet.
	Kubeconfig string
	// Isolate keeps containers from devices that they do not hold, as far as device plugins know how.
	Isolate bool
	// NodeName is the name of this node: --hostname-override or the host's name.
	NodeName string

	hostnameOverride string
	configFile       string
	kubeletConfig    string
	kubeletConfigDir string
	ignoreUnknown    bool

	// loadPlugins, if set, stands for PluginFolder.
	loadPlugins plugins.Load
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		ServeEndpoint:    "unix:///run/kubedevice/kubecri.sock",
		UpstreamEndpoint: "unix:///run/containerd/containerd.sock",
		PluginFolder:     "/usr/local/KubeExt/devices",
		StateFolder:      "/var/lib/kubedevice",
		KubeletFolder:    "/var/lib/kubelet",
		MetricsAddress:   "127.0.0.1:10261",
	}
}

// ignoreUnknownFlag is looked for before flags are parsed.
const ignoreUnknownFlag = "ignore-unknown-kubelet-flags"

// addFlags adds the flags that have an effect.
func (o *Options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.configFile, configurationFlag, o.configFile, "kubecri's own configuration file; flags win over it, and it over the kubelet's")
	flags.StringVar(&o.ServeEndpoint, "container-runtime-endpoint", o.ServeEndpoint, "Unix socket to serve, and to give to the kubelet under the same flag; systemd may hand it over")
	flags.StringVar(&o.UpstreamEndpoint, "cri-upstream", o.UpstreamEndpoint, "Unix socket of the container runtime")
	flags.StringVar(&o.PluginFolder, "cridevices", o.PluginFolder, "folder of the device plugins (*.so)")
	flags.BoolVar(&o.AllowWritablePlugins, pluginload.AllowWritableFlag, o.AllowWritablePlugins,
		"load plugin files that users other than root may write or replace")
	flags.BoolVar(&o.Isolate, "isolate", o.Isolate, "set environment variables by which containers without devices cannot help themselves to some, where device plugins know such; pods of the API server only, privileged containers excepted")
	flags.StringVar(&o.StateFolder, "state-dir", o.StateFolder, "folder for what must outlive a restart: which pod holds which device")
	flags.StringVar(&o.DevicePluginsFolder, "device-plugins-dir", o.DevicePluginsFolder, "folder to mount into device plugins in place of the kubelet's device-plugins (default device-plugins in --state-dir)")
	flags.StringVar(&o.RegistryFolder, "plugins-registry-dir", o.RegistryFolder, "folder to mount into device plugins in place of the kubelet's plugins_registry (default plugins_registry in --state-dir)")
	flags.StringVar(&o.PodResourcesFolder, "pod-resources-dir", o.PodResourcesFolder, "folder to mount into exporters and other agents in place of the kubelet's pod-resources (default pod-resources in --state-dir)")
	flags.StringVar(&o.KubeletFolder, "root-dir", o.KubeletFolder, "the kubelet's root folder: kubecri asks the kubelet there which device plugins are its own, and which pods there are")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress, "address that serves /metrics, /healthz and /readyz; empty serves none")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "the kubelet's kubeconfig; it may appear later, as it does when the kubelet bootstraps. Without it kubecri is standalone, as the kubelet is")
	flags.StringVar(&o.hostnameOverride, "hostname-override", o.hostnameOverride, "name of this node, in place of the host's name")
	flags.StringVar(&o.kubeletConfig, "config", o.kubeletConfig, "the kubelet's configuration file, read for containerRuntimeEndpoint")
	flags.StringVar(&o.kubeletConfigDir, "config-dir", o.kubeletConfigDir, "folder of the kubelet's configuration drop-ins (*.conf), read for containerRuntimeEndpoint")
	flags.BoolVar(&o.ignoreUnknown, ignoreUnknownFlag, o.ignoreUnknown, "accept flags that neither kubecri nor the kubelet it was built against knows")
}

// complete fills in what flags do not say and checks the whole. flags must be parsed.
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
	serve, err := criproxy.SocketPath(o.ServeEndpoint)
	if err != nil {
		return fmt.Errorf("--container-runtime-endpoint: %w", err)
	}
	upstream, err := criproxy.SocketPath(o.UpstreamEndpoint)
	if err != nil {
		return fmt.Errorf("--cri-upstream: %w", err)
	}
	if serve == upstream {
		return fmt.Errorf("--container-runtime-endpoint and --cri-upstream are both %s: kubecri would call itself; "+
			"point kubelet and kubecri at a socket of kubecri's own and --cri-upstream at the runtime's", serve)
	}
	if o.MetricsAddress != "" {
		if _, err := net.ResolveTCPAddr("tcp", o.MetricsAddress); err != nil {
			return fmt.Errorf("--metrics-bind-address: %w; want an address such as 127.0.0.1:10261, or nothing", err)
		}
	}
	if o.StateFolder == "" {
		return errors.New("--state-dir is empty: it must name a folder that outlives a reboot")
	}
	if path := o.podResourcesPath(); path == o.kubeletPodResourcesPath() {
		return fmt.Errorf("--pod-resources-dir is the kubelet's own folder: kubecri would take the place of %s, which it asks; choose another folder", path)
	}
	return nil
}
