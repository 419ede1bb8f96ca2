// The generated messages and services of the contract.
export * from "./gen/execwire/v1/environment_pb.js";
export * from "./gen/execwire/v1/error_pb.js";
export * from "./gen/execwire/v1/filesystem_handle_pb.js";
export * from "./gen/execwire/v1/filesystem_metadata_pb.js";
export * from "./gen/execwire/v1/filesystem_pb.js";
export * from "./gen/execwire/v1/filesystem_transfer_pb.js";
export * from "./gen/execwire/v1/filesystem_walk_pb.js";
export * from "./gen/execwire/v1/filesystem_watch_pb.js";
export * from "./gen/execwire/v1/http_pb.js";
export * from "./gen/execwire/v1/process_command_pb.js";
export * from "./gen/execwire/v1/process_event_pb.js";
export * from "./gen/execwire/v1/process_pb.js";
export * from "./gen/execwire/v1/process_run_pb.js";
export * from "./gen/execwire/v1/process_service_pb.js";
export * from "./gen/execwire/v1/sandbox_pb.js";
export * from "./gen/execwire/v1/session_pb.js";
