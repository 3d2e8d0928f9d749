// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strconv"

	"github.com/spf13/pflag"
)

// The flags of the kubelet of Kubernetes 1.37 that mean nothing to kubecri, by how they are
// written: --name or --name=false, or --name value. They are accepted so that one set of arguments
// starts both. A test holds the lists against the kubelet's source.
var (
	ignoredBools = []string{
		"anonymous-auth", "authentication-token-webhook", "cgroups-per-qos", "contention-profiling", "cpu-cfs-quota",
		"enable-controller-attach-detach", "enable-debugging-handlers", "enable-server", "exit-on-lock-contention",
		"experimental-allocatable-ignore-eviction", "fail-cgroupv1", "fail-swap-on", "kernel-memcg-notification",
		"local-storage-capacity-isolation", "make-iptables-util-chains", "protect-kernel-defaults", "register-node",
		"rotate-certificates", "rotate-server-certificates", "runonce", "seccomp-default", "serialize-image-pulls",
	}
	ignoredValues = []string{
		"address", "allowed-unsafe-sysctls", "authentication-token-webhook-cache-ttl", "authorization-mode",
		"authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-unauthorized-ttl",
		"bootstrap-kubeconfig", "cert-dir", "cgroup-driver", "cgroup-root", "client-ca-file", "cloud-provider",
		"cluster-dns", "cluster-domain", "container-log-max-files", "container-log-max-size", "cpu-cfs-quota-period",
		"cpu-manager-policy", "cpu-manager-policy-options", "cpu-manager-reconcile-period", "enforce-node-allocatable",
		"event-burst", "event-qps", "eviction-hard", "eviction-max-pod-grace-period", "eviction-minimum-reclaim",
		"eviction-pressure-transition-period", "eviction-soft", "eviction-soft-grace-period",
		"experimental-mounter-path", "feature-gates", "file-check-frequency", "hairpin-mode", "healthz-bind-address",
		"healthz-port", "housekeeping-interval", "http-check-frequency", "image-credential-provider-bin-dir",
		"image-credential-provider-config", "image-gc-high-threshold", "image-gc-low-threshold",
		"image-service-endpoint", "kube-api-burst", "kube-api-content-type", "kube-api-qps", "kube-reserved",
		"kube-reserved-cgroup", "kubelet-cgroups", "lock-file", "manifest-url", "manifest-url-header",
		"max-open-files", "max-pods", "maximum-dead-containers", "maximum-dead-containers-per-container",
		"memory-manager-policy", "minimum-container-ttl-duration", "minimum-image-ttl-duration", "node-ip",
		"node-labels", "node-status-max-images", "node-status-update-frequency", "oom-score-adj", "pod-cidr",
		"pod-manifest-path", "pod-max-pids", "pods-per-core", "port", "provider-id", "qos-reserved", "read-only-port",
		"register-with-taints", "registry-burst", "registry-qps", "reserved-cpus", "reserved-memory", "resolv-conf",
		"runtime-cgroups", "runtime-request-timeout", "streaming-connection-idle-timeout",
		"sync-frequency", "system-cgroups", "system-reserved", "system-reserved-cgroup", "tls-cert-file",
		"tls-cipher-suites", "tls-min-version", "tls-private-key-file", "topology-manager-policy",
		"topology-manager-policy-options", "topology-manager-scope", "volume-plugin-dir", "volume-stats-agg-period",
		// Flags of older kubelets, which tools that set up nodes still write.
		"cloud-config", "container-runtime", "pod-infra-container-image",
	}
)

// addIgnoredFlags makes flags accept what the kubelet accepts, hidden from help.
func addIgnoredFlags(flags *pflag.FlagSet) {
	for _, name := range ignoredValues {
		flags.Var(ignoredFlag("string"), name, "a flag of the kubelet, without effect here")
	}
	for _, name := range ignoredBools {
		flags.Var(ignoredFlag("bool"), name, "a flag of the kubelet, without effect here")
		flags.Lookup(name).NoOptDefVal = "true"
	}
	flags.VisitAll(func(flag *pflag.Flag) {
		if _, ok := flag.Value.(ignoredFlag); ok {
			flag.Hidden = true
		}
	})
}

// ignoredFlag is a flag.Value of the type it names that forgets what it is set to.
type ignoredFlag string

func (i ignoredFlag) String() string { return "" }

func (i ignoredFlag) Type() string { return string(i) }

func (i ignoredFlag) Set(value string) error {
	if i == "bool" {
		_, err := strconv.ParseBool(value)
		return err
	}
	return nil
}
