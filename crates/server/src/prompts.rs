//! Prompts as the protocol carries them.

use rmcp::ErrorData;
use rmcp::model::{GetPromptRequestParams, GetPromptResult, Prompt, PromptArgument, PromptMessage, Role};
use supervisor::Client;
use tools::{Surface, prompts};

/// The prompts `surface` can offer.
pub(crate) fn rows(surface: &Surface) -> Vec<Prompt> {
    prompts::offered(surface)
        .map(|prompt| {
            let argument = |argument: &prompts::Argument| {
                PromptArgument::new(argument.name)
                    .with_description(argument.description)
                    .with_required(argument.required)
            };
            let arguments = prompt.arguments.iter().map(argument).collect();
            Prompt::new(prompt.name, Some(prompt.description), Some(arguments)).with_title(prompt.title)
        })
        .collect()
}

/// The message of one. Opens and runs nothing.
pub(crate) fn get(
    client: &Client,
    surface: &Surface,
    request: GetPromptRequestParams,
) -> Result<GetPromptResult, ErrorData> {
    let Some(prompt) = prompts::offered(surface).find(|prompt| prompt.name == request.name) else {
        let names: Vec<&str> = prompts::offered(surface).map(|prompt| prompt.name).collect();
        let asked: String = request.name.chars().take(64).collect();
        let text = format!("there is no prompt {asked:?} here; there are: {}", names.join(", "));
        return Err(ErrorData::invalid_params(client.redactor().text(&text).into_owned(), None));
    };
    let text = prompt.message(&request.arguments.unwrap_or_default(), surface).map_err(|problems| {
        ErrorData::invalid_params(client.redactor().text(&problems).into_owned(), None)
    })?;
    let message = PromptMessage::new_text(Role::User, client.redactor().text(&text));
    Ok(GetPromptResult::new(vec![message]).with_description(prompt.description))
}
