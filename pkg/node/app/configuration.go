// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
)

// The version and kind of kubecri's configuration file.
const (
	ConfigurationVersion = "kubecri.config.kubedevice.io/v1alpha1"
	ConfigurationKind    = "KubecriConfiguration"
)

// Configuration is kubecri's configuration file, in YAML or JSON. Each field sets the flag of the
// same name, unless the flag is given. A field that is absent sets nothing.
type Configuration struct {
	// APIVersion and Kind must be ConfigurationVersion and ConfigurationKind.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Mode is cri or nri.
	Mode                     *string `json:"mode,omitempty"`
	ContainerRuntimeEndpoint *string `json:"containerRuntimeEndpoint,omitempty"`
	CRIUpstream              *string `json:"criUpstream,omitempty"`
	CRIDevices               *string `json:"criDevices,omitempty"`
	AllowWritablePlugins     *bool   `json:"allowWritablePlugins,omitempty"`
	// DeviceFirewall is on or off. YAML takes the words for true and false.
	DeviceFirewall *bool `json:"deviceFirewall,omitempty"`
	// DeviceFirewallAllow are the pods that the firewall lets through, as namespace/serviceaccount.
	DeviceFirewallAllow []string `json:"deviceFirewallAllow,omitempty"`
	// DeviceFirewallVendors are vendors that the firewall does not know by itself.
	DeviceFirewallVendors []firewall.Vendor `json:"deviceFirewallVendors,omitempty"`
	// VirtualDevices are how often each device of an extended resource counts in the node's status,
	// such as 10 by nvidia.com/gpu.
	VirtualDevices map[string]int64 `json:"virtualDevices,omitempty"`
	// Isolate, DevicePluginsDir, PluginsRegistryDir, PodResourcesDir and DeviceSeries have no
	// effect.
	Isolate          *bool   `json:"isolate,omitempty"`
	SealCertificates *string `json:"sealCertificates,omitempty"`
	SealTrustBundle  *string `json:"sealTrustBundle,omitempty"`
	SealMode         *string `json:"sealMode,omitempty"`
	// OnDeviceFailure is Ignore, Evict or Replace.
	OnDeviceFailure *string `json:"onDeviceFailure,omitempty"`
	// DeviceFailureGracePeriod is a duration such as 90s.
	DeviceFailureGracePeriod *string `json:"deviceFailureGracePeriod,omitempty"`
	// DeviceUsageInterval is a duration such as 10s, or 0s.
	DeviceUsageInterval *string `json:"deviceUsageInterval,omitempty"`
	// OnShareExceeded is Ignore, End or Evict.
	OnShareExceeded *string `json:"onShareExceeded,omitempty"`
	// ShareExceededGracePeriod is a duration such as 30s.
	ShareExceededGracePeriod *string `json:"shareExceededGracePeriod,omitempty"`
	// ContextMemory are quantities such as 518Mi, by parts of models' names.
	ContextMemory map[string]string `json:"contextMemory,omitempty"`
	// ShareLibrary is a file, and ShareLibraryLocks a directory.
	ShareLibrary      *string `json:"shareLibrary,omitempty"`
	ShareLibraryLocks *string `json:"shareLibraryLocks,omitempty"`

	StateDir           *string `json:"stateDir,omitempty"`
	DevicePluginsDir   *string `json:"devicePluginsDir,omitempty"`
	PluginsRegistryDir *string `json:"pluginsRegistryDir,omitempty"`
	PodResourcesDir    *string `json:"podResourcesDir,omitempty"`
	NRISocket          *string `json:"nriSocket,omitempty"`
	MetricsBindAddress *string `json:"metricsBindAddress,omitempty"`
	MetricsTLSCertFile *string `json:"metricsTLSCertFile,omitempty"`
	MetricsTLSKeyFile  *string `json:"metricsTLSPrivateKeyFile,omitempty"`
	DeviceSeries       *int    `json:"deviceSeries,omitempty"`
	Kubeconfig         *string `json:"kubeconfig,omitempty"`
	HostnameOverride   *string `json:"hostnameOverride,omitempty"`
	Logging            Logging `json:"logging,omitzero"`
}

// Logging configures kubecri's log.
type Logging struct {
	// Format is text or json, as of --logging-format.
	Format *string `json:"format,omitempty"`
	// Verbosity is that of -v.
	Verbosity *uint32 `json:"verbosity,omitempty"`
}

// values returns the values of flags, by name.
func (c *Configuration) values() map[string]*string {
	return map[string]*string{
		"mode":                         c.Mode,
		"container-runtime-endpoint":   c.ContainerRuntimeEndpoint,
		"cri-upstream":                 c.CRIUpstream,
		"cridevices":                   c.CRIDevices,
		pluginload.AllowWritableFlag:   textOf(c.AllowWritablePlugins),
		"seal-certificates":            c.SealCertificates,
		"seal-trust-bundle":            c.SealTrustBundle,
		"seal-mode":                    c.SealMode,
		firewallFlag:                   textOf(c.DeviceFirewall),
		firewallFlag + "-allow":        flagText(c.DeviceFirewallAllow),
		firewallFlag + "-vendors":      vendorsText(c.DeviceFirewallVendors),
		virtualFlag:                    virtualText(c.VirtualDevices),
		"isolate":                      textOf(c.Isolate),
		"on-device-failure":            c.OnDeviceFailure,
		graceFlag:                      c.DeviceFailureGracePeriod,
		usageFlag:                      c.DeviceUsageInterval,
		exceededFlag:                   c.OnShareExceeded,
		exceededGraceFlag:              c.ShareExceededGracePeriod,
		contextFlag:                    contextText(c.ContextMemory),
		libraryFlag:                    c.ShareLibrary,
		locksFlag:                      c.ShareLibraryLocks,
		"state-dir":                    c.StateDir,
		"device-plugins-dir":           unlessEmpty(c.DevicePluginsDir),
		"plugins-registry-dir":         unlessEmpty(c.PluginsRegistryDir),
		"pod-resources-dir":            unlessEmpty(c.PodResourcesDir),
		"nri-socket":                   c.NRISocket,
		"metrics-bind-address":         c.MetricsBindAddress,
		"metrics-tls-cert-file":        c.MetricsTLSCertFile,
		"metrics-tls-private-key-file": c.MetricsTLSKeyFile,
		"device-series":                textOf(c.DeviceSeries),
		"kubeconfig":                   c.Kubeconfig,
		"hostname-override":            c.HostnameOverride,
		"logging-format":               c.Logging.Format,
		"v":                            textOf(c.Logging.Verbosity),
	}
}

// unlessEmpty returns a value, or nil for an empty one, which was the default of a field that has
// no effect any more: no file needs a change because of it.
func unlessEmpty(value *string) *string {
	if value == nil || *value == "" {
		return nil
	}
	return value
}

// textOf returns how a value is written as a flag's, or nil for none.
func textOf[T any](value *T) *string {
	if value == nil {
		return nil
	}
	written := fmt.Sprint(*value)
	return &written
}

// vendorsText returns how a list of vendors is written as a flag's value, or nil for none. An empty
// list is one.
func vendorsText(list []firewall.Vendor) *string {
	if list == nil {
		return nil
	}
	written := cmp.Or((*vendorList)(&list).String(), "[]")
	return &written
}

// contextText returns how quantities by names are written as a flag's value, or nil for none. An
// empty map is one.
func contextText(entries map[string]string) *string {
	if entries == nil {
		return nil
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		texts = append(texts, name+"="+entries[name])
	}
	return flagText(append([]string{}, texts...))
}

// flagText returns how a list is written as a flag's value, or nil for none. An empty list is one.
func flagText(list []string) *string {
	if list == nil {
		return nil
	}
	written := strings.Join(list, ",")
	return &written
}

// decodeConfiguration reads the text of a configuration file. A field that this release does not
// know, or that stands twice, is an error: a setting that is not obeyed would be worse.
func decodeConfiguration(raw []byte) (*Configuration, error) {
	document, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return nil, err
	}
	c := &Configuration{}
	unknown, err := json.UnmarshalStrict(document, c)
	if err != nil {
		return nil, err
	}
	if c.APIVersion != ConfigurationVersion || c.Kind != ConfigurationKind {
		return nil, fmt.Errorf("apiVersion is %q and kind is %q; this kubecri reads %s, %s", c.APIVersion, c.Kind,
			ConfigurationVersion, ConfigurationKind)
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("%w; correct or remove what this kubecri does not know", errors.Join(unknown...))
	}
	return c, nil
}

// configurationFlag names the configuration file. The kubelet has --config for its own, which
// kubecri reads, too.
const configurationFlag = "kubecri-config"

// configure sets those of the flags that were not given to what the configuration file says, if
// there is one. What concerns none of the flags is checked and not used.
func configure(flags *pflag.FlagSet, file string) error {
	if file == "" {
		return nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--%s: %w", configurationFlag, err)
	}
	c, err := decodeConfiguration(raw)
	if err != nil {
		return fmt.Errorf("--%s: %s: %w", configurationFlag, file, err)
	}
	for name, value := range c.values() {
		if flag := flags.Lookup(name); flag == nil || flag.Changed || value == nil {
			continue
		}
		if err := flags.Set(name, *value); err != nil {
			return fmt.Errorf("--%s: %s: %w", configurationFlag, file, err)
		}
	}
	return nil
}
