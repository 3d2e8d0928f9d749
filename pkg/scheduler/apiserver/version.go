// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver fits the scheduler to the version of its API server: it emulates an older one,
// and ends a start that would wait for ever for an API that the server lacks.
package apiserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	versioninfo "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

const (
	emulatedVersion = "emulated-version" // upstream's flag

	// The waits between two attempts to reach the server.
	firstWait, maxWait = 500 * time.Millisecond, 10 * time.Second
	requestTimeout     = 5 * time.Second
)

// Emulate makes upstream's kube-scheduler command emulate the version of its API server when that
// is older than the command, as if the flag --emulated-version had been given. A scheduler that is
// newer than the API server is outside of Kubernetes' version skew policy; one that emulates the
// server's version has the features and uses the APIs of that version.
//
// The flag wins when it is given. A server that cannot be reached is waited for. One that is older
// than what can be emulated ends the command with an error that says so. One that does not tell its
// version to this client is not emulated.
func Emulate(cmd *cobra.Command) {
	next := cmd.PersistentPreRunE
	cmd.PersistentPreRunE = func(cmd *cobra.Command, arguments []string) error {
		if err := emulate(cmd); err != nil {
			return err
		}
		return next(cmd, arguments)
	}
}

func emulate(cmd *cobra.Command) error {
	if flags := cmd.Flags(); flags.Changed(emulatedVersion) || flags.Changed("version") ||
		flags.Changed("write-config-to") {
		return nil
	}
	config := clientConfig(cmd)
	if config == nil {
		return nil // upstream says why
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	server, err := waitForVersion(ctx, config)
	if err != nil {
		klog.ErrorS(err, "The API server does not report its version; the scheduler emulates none. "+
			"Give the version with --emulated-version", logkey.Server, config.Host)
		return nil
	}
	value, err := toEmulate(server, compatibility.DefaultBuildEffectiveVersion())
	if err != nil || value == "" {
		return err
	}
	klog.InfoS("Emulating the version of the API server", logkey.Flag, "--"+emulatedVersion+"="+value,
		logkey.Server, server.GitVersion)
	return cmd.Flags().Set(emulatedVersion, value)
}

// clientConfig returns the configuration of the command's client, or nil when it cannot be made.
func clientConfig(cmd *cobra.Command) *rest.Config {
	value := func(flag string) string { return cmd.Flag(flag).Value.String() }
	kubeconfig := value("kubeconfig")
	if file := value("config"); file != "" { // whose clientConnection counts then, as in upstream's options
		config, err := options.LoadConfigFromFile(klog.Background(), file)
		if err != nil {
			return nil
		}
		kubeconfig = config.ClientConnection.Kubeconfig
	}
	config, err := clientcmd.BuildConfigFromFlags(value("master"), kubeconfig)
	if err != nil {
		return nil
	}
	config.Timeout = requestTimeout
	return rest.AddUserAgent(config, "scheduler")
}

// waitForVersion returns what the server says of itself, as soon as it says something. The error is
// its refusal.
func waitForVersion(ctx context.Context, config *rest.Config) (*versioninfo.Info, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	backoff := wait.Backoff{Duration: firstWait, Factor: 2, Steps: 10, Cap: maxWait}
	for {
		info, err := client.ServerVersion()
		if err == nil || isRefusal(err) {
			return info, err
		}
		klog.ErrorS(err, "Waiting for the API server, to learn its version", logkey.Server, config.Host)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(backoff.Step()):
		}
	}
}

// isRefusal reports whether the error is a server's answer that waiting does not change.
func isRefusal(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}

// toEmulate returns the value of --emulated-version for a server, or "" when it is not older than
// the scheduler. own is changed.
func toEmulate(server *versioninfo.Info, own basecompatibility.MutableEffectiveVersion) (string, error) {
	theirs, err := versionOf(server)
	if err != nil {
		return "", fmt.Errorf("the API server says that its version is %q: %w; "+
			"give the version with --%s", server.GitVersion, err, emulatedVersion)
	}
	binary := own.BinaryVersion()
	if !theirs.LessThan(version.MajorMinor(binary.Major(), binary.Minor())) {
		return "", nil
	}
	allowed := own.AllowedEmulationVersionRange()
	own.SetEmulationVersion(theirs)
	if errs := own.Validate(); len(errs) > 0 {
		return "", fmt.Errorf("the API server is Kubernetes %s, and this scheduler works with %s: "+
			"upgrade the API server, or use a release of this scheduler for its version", server.GitVersion, allowed)
	}
	return fmt.Sprintf("%s=%d.%d", basecompatibility.DefaultKubeComponent, theirs.Major(), theirs.Minor()), nil
}

// versionOf returns the major and minor version whose APIs the server has: of a server that
// emulates, the version that it emulates.
func versionOf(server *versioninfo.Info) (*version.Version, error) {
	major, minor := server.Major, server.Minor
	if server.EmulationMajor != "" && server.EmulationMinor != "" {
		major, minor = server.EmulationMajor, server.EmulationMinor
	}
	// Providers append a sign, as in "34+".
	return version.ParseMajorMinor(strings.TrimRight(major, "+") + "." + strings.TrimRight(minor, "+"))
}
