// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/documents"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
)

// registrationFact is about whether the runtime takes kubecri as a plugin. It was tried, unless the
// runtime cannot send its list of containers.
func (e *Enrolment) registrationFact(ctx context.Context, s *nodeState, socket string) Fact {
	runtime, err := e.options.Runtimes.CheckNRI(ctx, s.kubelet.Endpoint, socket)
	if err != nil {
		return fact("NRI", "%v", err).blocks("the runtime must register kubecri, or use mode: cri")
	}
	return fact("NRI", "%s registers plugins at %s", runtime, socket)
}

// validatorFacts are about the runtime's default validator, and about who may be excepted from it.
func (e *Enrolment) validatorFacts(ctx context.Context, s *nodeState) []Fact {
	settings, err := e.options.Runtimes.Validator(ctx, s.kubelet.Endpoint)
	facts := []Fact{e.validatorFact(settings, err)}
	if err == nil && settings.Enabled && settings.Tolerated != "" {
		facts = append(facts, e.tolerationFact(ctx, s, settings))
	}
	return facts
}

// validatorFact is about the runtime's default validator, without which it creates containers with
// devices while kubecri is away. The error says why its settings are not known.
func (e *Enrolment) validatorFact(settings nri.Settings, err error) Fact {
	const away = "while kubecri is away, containers with devices are created without them"
	switch {
	case err != nil:
		return fact("validator", "unknown: %v", err).notice("where it is off, " + away + "; when the first container " +
			"was created, kubecri's /readyz says whether it is on (" + documents.URL + "deploy/required-plugin.md)")
	case !settings.Enabled:
		return fact("validator", "off, by %s", settings.File).notice(away +
			": switch the default validator on there and restart the runtime (" +
			documents.URL + "deploy/required-plugin.md)")
	}
	found := fact("validator", "on, by %s", settings.File)
	static := "static pods included, those of a control plane, too, and a kubecri that itself runs as a pod"
	if settings.Tolerated != "" {
		static += fmt.Sprintf(", except those of pods with the annotation %s", settings.Tolerated)
	}
	switch {
	case slices.Contains(settings.Required, deviceinfo.NRIPlugin):
		found.Finding += fmt.Sprintf("; all containers require %s", strings.Join(settings.Required, ", "))
		return found.notice("while kubecri is away, the runtime creates no container at all, " + static)
	case settings.Tolerated != "":
		return found.notice("containers with devices require kubecri. While it is away, the runtime creates none of " +
			"them, " + static)
	case e.options.Mode == ModeNRI:
		return found.notice(fmt.Sprintf("containers with devices require kubecri. If none may pass the firewall "+
			"while kubecri is away, have all containers require it: required_plugins = [%q] there. The runtime then "+
			"creates none meanwhile, %s", deviceinfo.NRIPlugin, static))
	}
	return found
}
