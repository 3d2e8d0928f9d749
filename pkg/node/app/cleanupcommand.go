// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/advertise"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// cleanupTimeout is how long a clean-up may take.
const cleanupTimeout = 30 * time.Second

// cleanupCommand takes away what kubecri published on its node.
func cleanupCommand() *cobra.Command {
	options := NewOptions()
	command := &cobra.Command{
		Use:   "cleanup",
		Short: "Take away what kubecri published on this node",
		Long: "Take away what kubecri published on this node: the annotation " + deviceinfo.Annotation +
			" and the extended resources that it lists.\n" +
			"Stop kubecri first; it would publish them again, so this refuses while it runs. Containers that run are " +
			"not touched.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := configure(command.Flags(), options.configFile); err != nil {
				return err
			}
			if options.Kubeconfig == "" {
				return errors.New(
					"--kubeconfig is missing: name the one that kubecri had, which is the kubelet's, such as " +
						"/etc/kubernetes/kubelet.conf")
			}
			var err error
			if options.NodeName, err = nodeutil.GetHostname(options.hostnameOverride); err != nil {
				return fmt.Errorf("name of this node: %w; set --hostname-override", err)
			}
			client, err := newClient(options.Kubeconfig)
			if err != nil {
				return fmt.Errorf("--kubeconfig: %w", err)
			}
			ctx, cancel := context.WithTimeout(command.Context(), cleanupTimeout)
			defer cancel()
			return cleanUp(ctx, command.OutOrStdout(), client, options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.configFile, configurationFlag, options.configFile,
		"kubecri's configuration file; the flags win over it")
	flags.StringVar(&options.Kubeconfig, "kubeconfig", options.Kubeconfig, "the kubelet's kubeconfig")
	flags.StringVar(&options.hostnameOverride, "hostname-override", options.hostnameOverride,
		"name of this node, in place of the host's name")
	flags.StringVar(&options.StateDir, "state-dir", options.StateDir,
		"kubecri's directory of that name; it shows whether kubecri still runs")
	return command
}

// cleanUp removes what kubecri published on the node, and prints it to out. It holds the checkpoint
// of grants, as a kubecri that runs does.
func cleanUp(ctx context.Context, out io.Writer, client kubernetes.Interface, options *Options) error {
	held, err := grants.Hold(options.grantsPath())
	switch {
	case errors.Is(err, grants.ErrInUse):
		return fmt.Errorf("a kubecri runs with --state-dir %s and would publish the devices of node %q again: "+
			"stop it (systemctl disable --now kubecri.socket kubecri.service) and try again", options.StateDir,
			options.NodeName)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--state-dir %s does not exist, so it is unknown whether a kubecri runs: "+
			"name the directory that kubecri had, or make an empty one if it is gone and kubecri is stopped",
			options.StateDir)
	case err != nil:
		return err
	}
	defer held.Close()
	resources, found, err := advertise.Withdraw(ctx, client, options.NodeName)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; --kubeconfig and --hostname-override must be those of this node's kubelet", err)
	case err != nil:
		return err
	case !found:
		fmt.Fprintf(out, "node %q: kubecri has nothing published\n", options.NodeName)
	case len(resources) == 0:
		fmt.Fprintf(out, "node %q: took away the annotation %s\n", options.NodeName, deviceinfo.Annotation)
	default:
		fmt.Fprintf(out, "node %q: took away the annotation %s and the extended resources %s\n",
			options.NodeName, deviceinfo.Annotation, strings.Join(resources, ", "))
	}
	return nil
}
