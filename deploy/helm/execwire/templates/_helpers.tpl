{{- define "execwire.labels" -}}
app.kubernetes.io/name: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "execwire.podSecurity" -}}
runAsNonRoot: true
{{- with get .Values.user "runAsUser" }}
runAsUser: {{ . }}
{{- end }}
{{- with get .Values.user "runAsGroup" }}
runAsGroup: {{ . }}
{{- end }}
{{- with get .Values.user "fsGroup" }}
fsGroup: {{ . }} # the group of secrets, which the server reads as a file of root and of its group
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "execwire.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Settings as environment variables: prefix and settings. */}}
{{- define "execwire.settings" -}}
{{- $prefix := .prefix }}
{{- range $name, $value := .settings }}
- name: {{ $prefix }}{{ upper $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "execwire.hubDomain" -}}
{{ .Release.Name }}-hub.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}
